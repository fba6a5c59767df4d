"""What a consumer asks of whom, and what the answers mean. No sockets, no clock."""
