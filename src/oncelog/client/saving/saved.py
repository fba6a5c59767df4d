"""The saved producer: a small value with a version."""
