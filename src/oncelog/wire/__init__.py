"""Frames and messages of the Kafka protocol. No sockets."""
