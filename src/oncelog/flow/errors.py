"""Errors that keep a flow from running."""


class FlowRefused(Exception):
    """It cannot begin as it is; nothing was read or written. The text says what has to be done."""


class FlowFailed(Exception):
    """It ran, and ended although nobody asked it to. What is committed stays, and a new start goes on from there."""
