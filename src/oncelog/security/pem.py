"""PEM: certificates and keys as text, one block after the other, whatever stands between them.

A block may also stand in one line, as in a `.properties` file: OpenSSL wants lines, so they are made again.
"""

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MOST_CHARACTERS: Final = 2**20  # thousands of certificates: a truststore of a whole system has some hundred
CERTIFICATE: Final = "CERTIFICATE"
_KEYS: Final = ("PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
_BEGIN: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_LINE: Final = 64


class Unreadable(ValueError):
    """No PEM; the text says what is missing, and nothing of what is there."""


@dataclass(frozen=True, slots=True)
class Block:
    label: str
    headers: tuple[str, ...]  # of a key that is encrypted in the old way
    body: str  # without its lines

    def __repr__(self) -> str:
        return f"Block({self.label})"  # it may be a key

    @property
    def is_certificate(self) -> bool:
        return self.label == CERTIFICATE

    @property
    def is_key(self) -> bool:
        return self.label in _KEYS

    @property
    def is_encrypted(self) -> bool:
        return self.label.startswith("ENCRYPTED") or any("ENCRYPTED" in each for each in self.headers)

    @property
    def text(self) -> str:
        lines = [self.body[at : at + _LINE] for at in range(0, len(self.body), _LINE)]
        headers = [*self.headers, ""] if self.headers else []
        return "\n".join([f"-----BEGIN {self.label}-----", *headers, *lines, f"-----END {self.label}-----", ""])

    @property
    def der(self) -> bytes:
        try:
            return binascii.a2b_base64(self.body, strict_mode=True)
        except binascii.Error:
            raise Unreadable(f"a block {self.label} is no base64") from None


def blocks(text: str) -> Iterator[Block]:
    if len(text) > MOST_CHARACTERS:
        raise Unreadable(f"it has more than {MOST_CHARACTERS:,} characters")
    at = 0
    while begin := _BEGIN.search(text, at):
        label = begin[1]
        end_line = f"-----END {label}-----"
        end = text.find(end_line, begin.end())
        if end < 0:
            raise Unreadable(f"a block {label} does not end")
        if not text[begin.end() : end].isascii():
            raise Unreadable(f"a block {label} has letters that no PEM has")
        lines = text[begin.end() : end].split("\n")
        headers = tuple(line.strip() for line in lines if ":" in line)
        yield Block(label, headers, "".join("".join(line.split()) for line in lines if ":" not in line))
        at = end + len(end_line)
