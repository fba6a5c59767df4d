"""Errors that keep a flow from running."""


class FlowRefused(Exception):
    """The flow cannot begin as it is; nothing was read or written. The text says what has to be done."""


class FlowFailed(Exception):
    """The flow ran, and a failure ended it. Its commits stay, and a new start goes on from there."""
