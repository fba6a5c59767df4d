"""oncelog.flush=every: an answer waits for the disk, and answers share a flush."""

import errno
import threading
from collections.abc import Iterator

import pytest

from oncelog.embedded import Server
from oncelog.log.checkpoint import Checkpoint
from oncelog.server.errors import ErrorCode
from tests.raw import RawConnection, batch
from tests.raw.topics import new_topic
from tests.waiting import until


class Gate:
    """The disk's flush, held back until a test lets it go."""

    def __init__(self, server: Server, topic: str, patch: pytest.MonkeyPatch) -> None:
        partition = server.broker.topics.partition(topic, 0)
        assert partition is not None
        self.log = partition.log
        self.open = threading.Event()
        self.flushes = 0
        real = self.log.flusher.sync

        def sync(*paths: str) -> None:
            self.flushes += 1
            assert self.open.wait(30)
            real(*paths)

        patch.setattr(self.log.flusher, "sync", sync)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(oncelog_flush="every") as server:
        yield server


def test_an_answer_waits_for_the_disk(server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(raw)
    gate = Gate(server, topic, monkeypatch)
    raw.ask_produce(topic, 0, batch([b"x"]))
    until(lambda: gate.flushes == 1, "the flush to begin")
    with RawConnection(server.bootstrap_servers) as reader:
        assert reader.fetch(topic, 0, 0).high_watermark == 0
        ahead = reader.fetch(topic, 0, 1)  # there, but not to be seen yet: no reason to look for another offset
        assert (ahead.error_code, bytes(ahead.records)) == (ErrorCode.none, b"")
    raw.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        raw.receive_bytes()
    raw.socket.settimeout(30)
    gate.open.set()
    assert raw.produce_answer().base_offset == 0
    assert raw.fetch(topic, 0, 0).high_watermark == 1


def test_a_reader_that_comes_during_a_flush_is_answered_when_that_is_done(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(raw)
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    gate = Gate(server, topic, monkeypatch)
    raw.ask_produce(topic, 0, batch([b"x"]))
    until(lambda: gate.flushes == 1, "the flush to begin")
    found = []
    with RawConnection(server.bootstrap_servers) as reader:
        reading = threading.Thread(target=lambda: found.append(reader.fetch(topic, 0, 0, max_wait_ms=3_600_000)))
        reading.start()
        until(lambda: len(partition.polls) == 1, "the reader to wait")
        gate.open.set()
        reading.join(20)
    assert found and found[0].records and raw.produce_answer().base_offset == 0


def test_many_answers_share_a_flush_and_keep_their_order(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(raw)
    gate = Gate(server, topic, monkeypatch)
    raw.ask_produce(topic, 0, batch([b"first"]))
    until(lambda: gate.flushes == 1, "the flush to begin")
    for _ in range(50):
        raw.ask_produce(topic, 0, batch([b"more"]))
    raw.ask("metadata", 9, topics=[], allow_auto_topic_creation=False)
    until(lambda: gate.log.next_offset == 51, "all batches to be appended while the first waits")
    gate.open.set()
    assert [raw.produce_answer().base_offset for _ in range(51)] == list(range(51))
    assert raw.answer().brokers
    assert gate.flushes <= 4


def test_a_duplicate_waits_for_the_flush_of_its_original(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(raw)
    pid, epoch = raw.init_producer_id()
    data = batch([b"x"], pid=pid, epoch=epoch, sequence=0)
    gate = Gate(server, topic, monkeypatch)
    raw.ask_produce(topic, 0, data)
    until(lambda: gate.flushes == 1, "the flush to begin")
    with RawConnection(server.bootstrap_servers, timeout_s=0.2) as retry:
        retry.ask_produce(topic, 0, data)
        with pytest.raises(TimeoutError):
            retry.receive_bytes()
    gate.open.set()
    assert raw.produce_answer().base_offset == 0
    assert raw.produce(topic, 0, data).base_offset == 0


def test_a_failed_flush_is_answered_as_a_storage_error(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(raw)
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(partition.log.flusher, "sync", fail)
    assert raw.produce(topic, 0, batch([b"x"])).error_code is ErrorCode.kafka_storage_error
    assert raw.produce(topic, 0, batch([b"x"])).error_code is ErrorCode.kafka_storage_error


def test_stopping_answers_what_was_appended() -> None:
    with Server(oncelog_flush="every") as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        with pytest.MonkeyPatch.context() as patch:
            gate = Gate(server, topic, patch)
            raw.ask_produce(topic, 0, batch([b"x"]))
            until(lambda: gate.flushes == 1, "the flush to begin")
            closing = threading.Thread(target=server.close)
            closing.start()
            gate.open.set()
            assert raw.produce_answer().base_offset == 0
            closing.join()


def test_a_flush_that_finds_no_descriptor_is_tried_again_by_itself(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(raw)
    gate = Gate(server, topic, monkeypatch)
    gate.open.set()
    real, refusals = gate.log.flusher.sync, iter([OSError(errno.EMFILE, "Too many open files")] * 2)

    def sync(*paths: str) -> None:
        refusal = next(refusals, None)
        if refusal is not None:
            raise refusal
        real(*paths)

    monkeypatch.setattr(gate.log.flusher, "sync", sync)
    raw.ask_produce(topic, 0, batch([b"x"]))
    answer = raw.produce_answer()
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    assert next(refusals, None) is None


def test_a_large_request_waits_for_a_round_of_flushes_and_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one more behind it, the next round would be due before this one is over, and the loop would wait for it."""
    flushing, is_open, flushed_by = threading.Event(), threading.Event(), set[str]()
    run = Checkpoint.run

    def held(self: Checkpoint) -> None:
        flushed_by.add(threading.current_thread().name)
        flushing.set()
        assert is_open.wait(30)
        run(self)

    monkeypatch.setattr(Checkpoint, "run", held)
    large = batch([bytes(400_000)])
    with Server(oncelog_recovery_max_bytes=2**20) as server, RawConnection(server.bootstrap_servers) as raw:
        loop = server.call(lambda: threading.current_thread().name)
        raw.create_topic("t")
        raw.produce("t", 0, large)
        assert flushing.wait(30)
        raw.produce("t", 0, large)
        raw.ask_produce("t", 0, large)
        with RawConnection(server.bootstrap_servers) as other:
            assert [other.produce("t", 0, batch([b"small"])).base_offset for _ in range(3)] == [2, 3, 4]
        is_open.set()
        assert raw.produce_answer().base_offset == 5
        assert flushed_by and loop not in flushed_by
