"""Leaders and followers of partitions, as machines: told what arrived and when, they say what to do.

No disk, no socket, no clock. What brokers must agree on stands in a tree that others keep (`cluster/`), and changes by
compare-and-set alone; there is no controller. The log itself is passed in (`ports.py`).
"""
