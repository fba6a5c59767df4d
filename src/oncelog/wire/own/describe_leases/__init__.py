"""Versions of describe_leases."""
