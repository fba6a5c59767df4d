"""What a replay must be equal to."""
