"""The requests of a fetching consumer, and the meaning of their answers. No sockets, no clock."""
