"""The keepers of registers (`slots/register.py`): a compacted topic, and the committed offsets of a group."""
