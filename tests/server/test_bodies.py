"""What is no records is not stored, and nobody waits while another client's much is looked into."""

import gc
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.log.config import LogConfig
from oncelog.records.errors import InvalidRecord
from oncelog.server import bodies
from oncelog.server.bodies import Look
from oncelog.server.errors import ErrorCode
from tests.raw import CODECS, RawConnection, Rec, batch, message
from tests.raw.batches import HEADER_BYTES, record_bytes, squeeze
from tests.raw.topics import new_topic
from tests.server.test_connection_bounds import frame
from tests.waiting import until

DOUBLED = record_bytes(0, Rec(b"a")) + record_bytes(0, Rec(b"b"))
NO_RECORDS = {
    "garbage": b"\xff" * 40,
    "one offset for two": DOUBLED,
    "a byte too much": record_bytes(0, Rec(b"a")) + b"\0",
}
CRUMBS = squeeze(CODECS["gzip"], b"") * 30_000


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
@pytest.mark.parametrize("body", NO_RECORDS.values(), ids=NO_RECORDS)
def test_what_is_no_records_is_refused(raw: RawConnection, topic: str, body: bytes, codec: int) -> None:
    count = 2 if body is DOUBLED else 1
    wrong = batch([b"x"] * count, payload=squeeze(codec, body), codec=codec)
    for _ in range(2):  # the second one is recognised by its first bytes
        answer = raw.produce(topic, 0, wrong)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_record, -1)
    assert raw.produce(topic, 0, batch([b"x"], codec=codec)).base_offset == 0


def test_one_compressed_record_is_not_taken_for_a_plain_one(raw: RawConnection, topic: str) -> None:
    looks_plain = record_bytes(0, Rec(b"value"))
    wrong = batch([b"x"], payload=looks_plain, codec=CODECS["zstd"])
    assert raw.produce(topic, 0, wrong).error_code is ErrorCode.invalid_record


def test_crumbs_of_a_codec_are_refused(raw: RawConnection, topic: str) -> None:
    assert (
        raw.produce(topic, 0, batch([b"x"], payload=CRUMBS, codec=CODECS["gzip"])).error_code
        is ErrorCode.invalid_record
    )


def test_what_unfolds_to_too_much_is_to_be_sent_in_smaller_batches(raw: RawConnection, topic: str) -> None:
    """Java's producer does that by itself when it is told so by this error."""
    bomb = batch([bytes(65 << 20)], codec=CODECS["zstd"])
    assert raw.produce(topic, 0, bomb).error_code is ErrorCode.message_too_large


def test_checks_can_be_left_out_but_where_a_topic_asks_for_them() -> None:
    wrong = batch([b"x"], payload=b"\xff" * 40)
    with Server(oncelog_records_check="off") as server, RawConnection(server.bootstrap_servers) as raw:
        assert raw.produce(new_topic(raw), 0, wrong).base_offset == 0
        compacted = new_topic(raw, cleanup_policy="compact")
        assert raw.produce(compacted, 0, wrong).error_code is ErrorCode.invalid_record


def test_compiled_loops_are_fetched_by_what_comes_in_and_judge_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WORTH_FETCHING_RECORDS", 1)
    many: list[Rec | bytes | None] = [Rec(b"v", key=b"k")] * 60
    swapped = b"".join(record_bytes(index ^ 1, Rec(b"v", key=b"k")) for index in range(60))
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        topic, compacted = new_topic(raw), new_topic(raw, cleanup_policy="compact")
        assert not server.broker.bodies.is_compiled
        assert raw.produce(topic, 0, batch([b"v"] * 3)).base_offset == 0
        assert not server.broker.bodies.is_fetching, "so few are walked by Python in any case"
        assert raw.produce(topic, 0, batch(many)).base_offset == 3
        until(lambda: server.broker.bodies.is_compiled, "the loops")
        assert raw.produce(topic, 0, batch(many)).base_offset == 63
        assert raw.produce(topic, 0, batch(many, payload=swapped)).error_code is ErrorCode.invalid_record
        assert raw.produce(compacted, 0, batch(many)).base_offset == 0
        answer = raw.produce(compacted, 0, batch([*many[:30], b"v", *many[:5]]))
        assert [each.batch_index for each in answer.record_errors] == [30]
    with Server(oncelog_records_check="python") as server, RawConnection(server.bootstrap_servers) as raw:
        raw.produce(new_topic(raw), 0, batch(many))
        assert not server.broker.bodies.is_fetching


# What a thread looks into


class Gate:
    """Lets looks begin only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self._open = threading.Event()
        run = Look.run

        def gated(look: Look) -> None:
            self.begun.release()
            assert self._open.wait(30), "a test's gate stayed shut"
            run(look)

        monkeypatch.setattr(Look, "run", gated)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


SOUND = random.Random(7).randbytes(600_000)
HEAVY = {
    "unfolds to much": batch([bytes(2 << 20)], codec=CODECS["zstd"]),
    "arrives in many pieces": batch([SOUND], codec=CODECS["lz4"]),
    "many records": batch([b""] * 30_000),
}


def produce_values(topic: str, *batches: bytes) -> dict[str, Any]:
    data = [{"index": index, "records": each} for index, each in enumerate(batches)]
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }


def offsets_answered(raw: RawConnection, count: int) -> list[list[int]]:
    kind = message("produce", 9)
    found = []
    for _ in range(count):
        data = raw.receive_bytes()
        answer, _ = kind.read_response(data, kind.read_header(data, 0)[1])
        found.append([each.base_offset for each in answer.responses[0].partition_responses])
    return found


@pytest.mark.parametrize("heavy", HEAVY.values(), ids=HEAVY)
def test_others_are_served_while_much_is_looked_into_and_the_order_stays(
    server: Server, raw: RawConnection, gate: Gate, heavy: bytes
) -> None:
    topic, others = new_topic(raw), new_topic(raw)
    light = frame("produce", 9, **produce_values(topic, batch([b"light"])))
    before = server.broker.memory.unserved.held_bytes
    with RawConnection(server.bootstrap_servers) as slow:
        slow.socket.sendall(light + frame("produce", 9, **produce_values(topic, heavy)) + light)
        assert offsets_answered(slow, 1) == [[0]]
        assert gate.begun.acquire(timeout=30)
        assert raw.produce(others, 0, batch([b"x"])).base_offset == 0
        assert raw.offset_at(topic, 0, -1).offset == 1
        gate.open()
        (first,), (second,) = offsets_answered(slow, 2)
        assert (first, second) == (1, 1 + int.from_bytes(heavy[57:HEADER_BYTES], "big"))
    until(lambda: server.broker.memory.unserved.held_bytes == before, "the memory of large frames")


def test_of_one_request_each_partition_gets_its_own_answer(server: Server, raw: RawConnection, gate: Gate) -> None:
    gate.open()
    topic = new_topic(raw, partitions=4)
    wrong = batch([b"x"], payload=squeeze(CODECS["zstd"], b"\xff" * (2 << 20)), codec=CODECS["zstd"])
    heavy = HEAVY["unfolds to much"]
    answer = raw.call("produce", 9, **produce_values(topic, heavy, wrong, batch([b"x"]), batch([b"x"], crc=1)))
    codes = [each.error_code for each in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.none, ErrorCode.invalid_record, ErrorCode.none, ErrorCode.corrupt_message]
    assert raw.offset_at(topic, 0, -1).offset == 1


def test_a_compacted_topic_names_what_a_thread_has_found(raw: RawConnection, gate: Gate) -> None:
    gate.open()
    topic = new_topic(raw, cleanup_policy="compact")
    heavy = batch([Rec(bytes(1 << 20), key=b"k"), bytes(1 << 20)], codec=CODECS["zstd"])
    assert [each.batch_index for each in raw.produce(topic, 0, heavy).record_errors] == [1]


@pytest.mark.parametrize("heavy", HEAVY.values(), ids=HEAVY)
def test_a_client_that_leaves_during_a_look_leaves_nothing_behind(
    server: Server, raw: RawConnection, gate: Gate, heavy: bytes
) -> None:
    topic = new_topic(raw)
    before = server.broker.memory.unserved.held_bytes
    with RawConnection(server.bootstrap_servers) as slow:
        slow.socket.sendall(frame("produce", 9, **produce_values(topic, heavy)))
        assert gate.begun.acquire(timeout=30)
        slow.socket.shutdown(socket.SHUT_RDWR)
    gate.open()
    until(lambda: server.broker.memory.unserved.held_bytes == before, "the memory of large frames")
    assert raw.produce(new_topic(raw), 0, heavy).base_offset == 0


def test_two_requests_are_looked_into_at_a_time(server: Server, raw: RawConnection, gate: Gate) -> None:
    topic, others = new_topic(raw), new_topic(raw)
    heavy = frame("produce", 9, **produce_values(topic, HEAVY["unfolds to much"]))
    with ExitStack() as stack:
        clients = [stack.enter_context(RawConnection(server.bootstrap_servers)) for _ in range(4)]
        for client in clients:
            client.socket.sendall(heavy)
        for _ in range(2):
            assert gate.begun.acquire(timeout=30)
        for _ in range(20):
            raw.produce(others, 0, batch([b"x"]))
        assert not gate.begun.acquire(blocking=False)
        gate.open()
        assert sorted(offsets_answered(client, 1)[0][0] for client in clients) == [0, 1, 2, 3]


UNFOLDED = 8 << 20
REFUSED = {
    "a bomb": batch([bytes(65 << 20)], codec=CODECS["gzip"]),
    "much that is no records": batch([b"x"], payload=squeeze(CODECS["gzip"], b"\xff" * UNFOLDED), codec=CODECS["gzip"]),
    "little that is no records": batch([b"x"], payload=squeeze(CODECS["zstd"], b"\xff" * 100), codec=CODECS["zstd"]),
    "what gzip refuses at its end": batch(
        [b"x"], payload=squeeze(CODECS["gzip"], bytes(UNFOLDED))[:-8] + bytes(8), codec=CODECS["gzip"]
    ),
}


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
def test_of_what_was_refused_nothing_is_left_to_the_garbage_collector(
    server: Server, raw: RawConnection, topic: str, wrong: bytes
) -> None:
    """Which looks no second time at what it once found in use: 64 MiB of a bomb would stay for good."""

    def left() -> list[InvalidRecord]:
        return [each for each in gc.get_objects() if isinstance(each, InvalidRecord)]

    server.call(gc.collect)
    before = {id(each) for each in left()}
    gc.disable()
    try:
        for _ in range(3):  # the later ones are recognised by their first bytes
            assert raw.produce(topic, 0, wrong).error_code in (ErrorCode.message_too_large, ErrorCode.invalid_record)
        until(lambda: not [each for each in left() if id(each) not in before], "what was refused to be gone")
    finally:
        gc.enable()


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
def test_a_verdict_that_waits_for_its_connection_holds_nothing_that_was_unfolded(wrong: bytes) -> None:
    look = Look(bodies.Bodies("python"), bytearray(wrong), 0, [(0, len(wrong), LogConfig())], 0)
    look.run()
    (verdict,) = look.verdicts(0).values()
    assert isinstance(verdict, InvalidRecord)
    assert (verdict.__traceback__, verdict.__context__) == (None, None)
