"""A flow in memory: topics, holders that are stopped and overlap, and what must come of it all the same. Pure."""
