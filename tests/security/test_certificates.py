"""What a certificate says of itself, and that nothing that only looks like one does harm."""

import random
import time
from pathlib import Path

import pytest

from oncelog.security.certificates import BadCertificate, read_certificate
from oncelog.security.pem import blocks
from tests.depth import deeper, scaled
from tests.security.names import NAMES, certificate


def der_of(path: Path) -> bytes:
    return next(blocks(path.read_text())).der


@pytest.mark.parametrize("subject", NAMES)
def test_names_are_written_as_java_writes_them(subject: str, tmp_path: Path) -> None:
    assert read_certificate(der_of(certificate(tmp_path, subject))).subject == NAMES[subject]


def test_its_time_is_read(tmp_path: Path) -> None:
    found = read_certificate(der_of(certificate(tmp_path, "/CN=alice")))
    assert found.ends_ms - found.begins_ms == 30 * 86_400_000
    assert abs(found.begins_ms - time.time() * 1000) < 600_000
    assert found.is_self_signed


@deeper
def test_what_is_no_certificate_is_refused_and_nothing_else_happens(tmp_path: Path) -> None:
    der = der_of(certificate(tmp_path, "/C=NL/CN=alice"))
    for seed in range(scaled(300)):
        chance = random.Random(seed)
        changed = bytearray(der)
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        del changed[chance.randrange(1, len(changed) + 1) :]
        try:
            read_certificate(bytes(changed))
        except BadCertificate:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_there_is_no_year_0(tmp_path: Path) -> None:
    """A server that nobody vouches for may say so to who only looks at it (`oncelog doctor`)."""
    der = der_of(certificate(tmp_path, "/CN=alice"))
    begins = der.index(b"\x17\x0d")  # as a UTCTime of 13 letters
    with pytest.raises(BadCertificate, match="a day that is none"):
        read_certificate(der[:begins] + b"\x18\x0d000001010000Z" + der[begins + 15 :])


def field(tag: int, value: bytes) -> bytes:
    return bytes([tag, 0x82]) + len(value).to_bytes(2, "big") + value


def of_issuer(names: bytes) -> bytes:
    return field(0x30, field(0x30, b"\x02\x01\x01" + b"\x30\x00" + field(0x30, names)))


def common_name(value: bytes) -> bytes:
    return field(0x31, field(0x30, bytes.fromhex("0603550403") + field(0x0C, value)))


def test_a_name_has_a_bound() -> None:
    """It is written in the loop's own time, letter by letter."""
    for names, words in (
        (common_name(b"aa") * 70, "more than 64 parts"),
        (common_name(b",=" * 2048), "a name of 4,113 bytes"),
    ):
        with pytest.raises(BadCertificate, match=words):
            read_certificate(of_issuer(names))
    with pytest.raises(BadCertificate, match="too early"):  # the rest of it is missing
        read_certificate(of_issuer(common_name(b",=" * 2000)))


def test_a_certificate_has_a_bound() -> None:
    with pytest.raises(BadCertificate, match="bytes"):
        read_certificate(bytes(70_000))
