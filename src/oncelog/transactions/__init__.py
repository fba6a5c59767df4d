"""What a transactional id goes through, as pure code: no disk, no socket, no clock."""
