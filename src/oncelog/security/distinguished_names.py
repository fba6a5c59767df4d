"""The name in a certificate as RFC 2253 has it and Java's `X500Principal.getName()` writes it.

That is what `ssl.principal.mapping.rules` and access rules are written for: the last part comes first, kinds that
RFC 2253 has no word for are numbers, and their values are bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_CHARSETS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


@dataclass(frozen=True, slots=True)
class Attribute:
    oid: str
    tag: int
    value: bytes
    der: bytes  # tag, length and value


def rfc2253(parts: Sequence[Sequence[Attribute]]) -> str:
    """`parts` as the certificate has them, each of one attribute or of several."""
    return ",".join("+".join(map(_written, attributes)) for attributes in reversed(parts))


def _written(attribute: Attribute) -> str:
    word, charset = _WORDS.get(attribute.oid), _CHARSETS.get(attribute.tag)
    if word is None or charset is None:
        return f"{word or attribute.oid}=#{attribute.der.hex()}"
    return f"{word}={_escaped(attribute.value.decode(charset, 'replace'))}"


def _escaped(text: str) -> str:
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    body = "".join("\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in inner)
    spaces = [f"\\{each}" for each in (text[:lead] + text[lead + len(inner) :])]
    return "".join([*spaces[:lead], body, *spaces[lead:]])
