"""The producer as a pure state machine: sequences, flights, retries, leases. No sockets, no clock."""
