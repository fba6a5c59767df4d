"""The proposal's idempotent producer as pure code: no I/O, no clock of its own."""
