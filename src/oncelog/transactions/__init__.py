"""The life of a transactional id, as pure code: no disk, no socket, no clock."""
