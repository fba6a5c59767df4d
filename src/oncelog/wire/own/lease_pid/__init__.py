"""Versions of lease_pid."""
