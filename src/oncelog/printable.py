"""Text that anyone may have sent, for a terminal or a line of a log: what a terminal would obey, what would begin
another line, and what nobody can see is spelled out. Pure.
"""


def printable(text: str) -> str:
    """A text as one line."""
    return text if text.isprintable() else "".join(each if each.isprintable() else spelled(each) for each in text)


def spelled(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
