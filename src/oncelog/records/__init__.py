"""Kafka v2 record batches: bytes to columns and back. No I/O, no clock; the header alone needs no numba."""
