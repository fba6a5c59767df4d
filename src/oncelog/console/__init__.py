"""The page to look at: what a server holds and does, in a browser, read only. Needs the extra `[console]`.

Everything is worked out when a browser asks, and bounded; while nobody looks there is a listening socket and no more.
"""
