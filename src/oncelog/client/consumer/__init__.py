"""Consumers: one record at a time, many, or columns."""
