"""Proofs of who one is, over a raw connection: each message by hand where a test wants that."""

from typing import Any

from kio.schema.errors import ErrorCode

from oncelog.security.scram_client import Scram
from tests.raw.connection import RawConnection

NONCE = "fyko+d2lbbFgONRv9qkxdawL"


def shake_hands(raw: RawConnection, mechanism: str, version: int = 1) -> Any:
    return raw.call("sasl_handshake", version, mechanism=mechanism)


def say(raw: RawConnection, message: bytes, version: int = 2) -> Any:
    return raw.call("sasl_authenticate", version, auth_bytes=message)


def prove(raw: RawConnection, name: str, password: str, mechanism: str = "SCRAM-SHA-256", version: int = 2) -> Any:
    """The last answer to a proof by SCRAM."""
    assert shake_hands(raw, mechanism).error_code is ErrorCode.none
    exchange = Scram(mechanism, name, password, NONCE)
    answer = say(raw, exchange.first(), version)
    if answer.error_code is not ErrorCode.none:
        return answer
    final = exchange.answer(answer.auth_bytes)
    assert final is not None
    answer = say(raw, final, version)
    if answer.error_code is ErrorCode.none:
        assert exchange.answer(answer.auth_bytes) is None and exchange.is_proven
    return answer


def plain(name: str, password: str, authorization: str = "") -> bytes:
    return "\0".join((authorization, name, password)).encode()
