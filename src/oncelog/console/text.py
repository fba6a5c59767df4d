"""Bytes that anyone may have sent, as text that does no harm and hides nothing. Pure.

The page puts all of it into text nodes, so markup stays text. What is left to do here: bytes that are no UTF-8,
characters that cannot be seen or that turn the direction of what follows, and size.
"""

from codecs import getincrementaldecoder
from typing import Any, Final

from oncelog.console.limits import NAME_BYTES

_decoder = getincrementaldecoder("utf-8")

# Kept are tab and line feed, and the joiners that emoji and Persian are written with.
_CONTROLS: Final = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)]
_UNSEEN: Final = [0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF]
_VISIBLE: Final = {
    **{code: f"\\x{code:02x}" for code in _CONTROLS},
    **{code: f"\\u{code:04x}" for code in _UNSEEN},
    **{code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)},  # halves of a pair, alone
}


def visible(text: str) -> str:
    return text.translate(_VISIBLE)


def name(text: str | None) -> str | None:
    """The name that a client gives itself, made visible and cut to its bound."""
    if text is None:
        return None
    return visible(text if len(text) <= NAME_BYTES else text[:NAME_BYTES] + "…")


def shown(data: bytes | None, most_bytes: int) -> dict[str, Any]:
    """`kind` is null, text or bytes; `size_bytes` counts all of it, `is_cut` says that not all is here."""
    if data is None:
        return {"kind": "null", "text": "", "size_bytes": 0, "is_cut": False}
    is_cut = len(data) > most_bytes
    part = data[:most_bytes]
    try:
        text, kind = _decoder().decode(part, not is_cut), "text"  # a character that the cut went through is left out
    except UnicodeDecodeError:
        text, kind = part.decode("utf-8", "backslashreplace"), "bytes"
    return {"kind": kind, "text": visible(text), "size_bytes": len(data), "is_cut": is_cut}
