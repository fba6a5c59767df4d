"""The saved producer in and out of committed offsets."""
