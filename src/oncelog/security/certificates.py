"""The content of a certificate, read from its DER: whose it is, who signed it, from when until when.

Whether that is true is OpenSSL's to say, which has verified whatever comes here as a client's. What comes here can
still be anything, so every length is checked, and nothing is read twice.
"""

import calendar
import re
from dataclasses import dataclass
from typing import Final

from oncelog.security.distinguished_names import Attribute, rfc2253

MOST_BYTES: Final = 64 * 1024
MOST_ATTRIBUTES: Final = 64
MOST_NAME_BYTES: Final = 4096  # a user's name has at most 1,024 characters, of four bytes each

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_TIME: Final = re.compile(rb"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})?Z")


class BadCertificate(ValueError):
    """No X.509 certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    subject: str  # as RFC 2253 has it, and Java writes it
    issuer: str
    begins_ms: int
    ends_ms: int

    def counts_at(self, now_ms: int) -> bool:
        return self.begins_ms <= now_ms < self.ends_ms

    @property
    def is_self_signed(self) -> bool:
        return self.subject == self.issuer


def read_certificate(der: bytes) -> Certificate:
    if len(der) > MOST_BYTES:
        raise BadCertificate(f"a certificate of {len(der):,} bytes")
    whole = _Reader(der).within(_SEQUENCE).within(_SEQUENCE)
    if whole.next_tag == _VERSION:
        whole.take()
    whole.take()  # serial number
    whole.take()  # how it is signed
    issuer = _name(whole.within(_SEQUENCE))
    validity = whole.within(_SEQUENCE)
    begins_ms, ends_ms = _time_ms(*validity.take()), _time_ms(*validity.take())
    return Certificate(_name(whole.within(_SEQUENCE)), issuer, begins_ms, ends_ms)


def _name(reader: "_Reader") -> str:
    if len(reader.data) > MOST_NAME_BYTES:
        raise BadCertificate(f"a name of {len(reader.data):,} bytes")
    parts: list[list[Attribute]] = []
    count = 0
    while not reader.is_over:
        attributes: list[Attribute] = []
        several = reader.within(_SET)
        while not several.is_over:
            one = several.within(_SEQUENCE)
            tag, oid = one.take()
            if tag != _OID or not oid:
                raise BadCertificate("a name without the kind of its parts")
            at = one.at
            value_tag, value = one.take()
            attributes.append(Attribute(_dotted(oid), value_tag, bytes(value), bytes(one.data[at : one.at])))
            count += 1
            if count > MOST_ATTRIBUTES:
                raise BadCertificate(f"a name of more than {MOST_ATTRIBUTES} parts")
        parts.append(attributes)
    return rfc2253(parts)


def _dotted(oid: memoryview) -> str:
    numbers: list[int] = []
    number = 0
    if len(oid) > 64:
        raise BadCertificate("an object identifier of more than 64 bytes")
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise BadCertificate("an object identifier that does not end")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time_ms(tag: int, value: memoryview) -> int:
    text = bytes(value)
    if tag == _UTC_TIME:
        text = (b"20" if text[:2] < b"50" else b"19") + text
    found = _TIME.fullmatch(text)
    if found is None:
        raise BadCertificate("a time that is none")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    if not (year and 1 <= month <= 12 and 1 <= day <= 31):
        raise BadCertificate("a day that is none")
    return calendar.timegm((year, month, day, hour, minute, second)) * 1000


class _Reader:
    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data)
        self.at = 0

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.data)

    @property
    def next_tag(self) -> int:
        return -1 if self.is_over else self.data[self.at]

    def within(self, tag: int) -> "_Reader":
        found, value = self.take()
        if found != tag:
            raise BadCertificate(f"a field {found:#04x} where {tag:#04x} is due")
        return _Reader(value)

    def take(self) -> tuple[int, memoryview]:
        """The next field's tag and value."""
        data, at = self.data, self.at
        if at + 2 > len(data):
            raise BadCertificate("it ends too early")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4 or at + count > len(data):
                raise BadCertificate("a length that is none")
            length = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + length > len(data):
            raise BadCertificate("it ends too early")
        self.at = at + length
        return tag, data[at : at + length]
