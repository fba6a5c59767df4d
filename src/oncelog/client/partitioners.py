"""Where a record goes."""
