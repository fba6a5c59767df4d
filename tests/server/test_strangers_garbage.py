"""Whatever comes before a proof, whole or cut, in whatever pieces: the server goes on, and lets nobody in."""

import random
import struct
from collections.abc import Iterator

import pytest

from tests.depth import deeper, scaled
from tests.raw import RawConnection, ServerClosed
from tests.raw.sasl import plain, prove
from tests.server.sasl_support import ANN, PASSWORD, Guarded, assert_serves, framed, guarded

METADATA_ID = 0x4D455441
SEEDS = 1000
HANDSHAKES = [
    framed("sasl_handshake", version, 2, mechanism=name)
    for version in (0, 1)
    for name in ("PLAIN", "SCRAM-SHA-256", "x")
]
PIECES = [
    *HANDSHAKES,
    framed("api_versions", 0, 1),
    framed("api_versions", 3, 1, client_software_name="me", client_software_version="1"),
    framed("sasl_authenticate", 0, 3, auth_bytes=plain(ANN, "wrong")),
    framed("sasl_authenticate", 2, 3, auth_bytes=b"n,,n=ann,r=abc"),
    framed("sasl_authenticate", 2, 3, auth_bytes=b"c=biws,r=abc,p=AAAA"),
    framed("metadata", 9, METADATA_ID, topics=[], allow_auto_topic_creation=False),
    framed("init_producer_id", 4, 5, transaction_timeout=1, producer_id=-1, producer_epoch=-1),
    struct.pack(">i", 0),
    struct.pack(">i", 5) + b"abcde",
]


@pytest.fixture(scope="module")
def at() -> Iterator[Guarded]:
    with guarded(connection_failed_authentication_delay_ms="0") as found:
        yield found


def garbage(chance: random.Random) -> bytes:
    begun = [chance.choice(HANDSHAKES)] if chance.random() < 0.7 else []
    sent = bytearray().join([*begun, *chance.choices(PIECES, k=chance.randint(1, 5))])
    for _ in range(chance.choice((0, 0, 1, 4))):
        sent[chance.randrange(len(sent))] = chance.randrange(256)
    return bytes(sent[: chance.choice((len(sent), chance.randrange(len(sent) + 1)))])


def answers(raw: RawConnection) -> list[bytes]:
    """Until the server ends it: this side has said that nothing more comes."""
    found = []
    try:
        while True:
            found.append(raw.receive_bytes())
    except ServerClosed:
        return found


@deeper
def test_nothing_is_served_and_nothing_breaks(at: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    for seed in range(scaled(SEEDS)):
        chance = random.Random(seed)
        with at.connected() as raw:
            sent = garbage(chance)
            try:
                while sent:
                    size = chance.choice((1, 7, 60, len(sent)))
                    raw.socket.sendall(sent[:size])
                    sent = sent[size:]
                raw.socket.shutdown(1)
            except OSError:  # it has closed the connection already
                pass
            assert all(not answer.startswith(struct.pack(">i", METADATA_ID)) for answer in answers(raw)), seed
    assert "unexpectedly" not in caplog.text
    with at.connected() as raw:
        prove(raw, ANN, PASSWORD)
        assert_serves(raw)
