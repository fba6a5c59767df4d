"""Reading the sink's topic while its leader changes."""

import asyncio
import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.retry import Clock, Patience
from oncelog.client.register import topic as keepers
from oncelog.client.register.partition import Fetched, OutOfRange
from oncelog.records.read import records_of
from oncelog.slots.register import Record
from oncelog.spark.options import sink_options
from oncelog.spark.sink.due_batch import DueBatch
from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.lane import VERSION, VERSION_KEY, LaneTask, topic_of
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.state_topic import KIND, StateTopic
from oncelog.spark.sink.warm_worker import read_on
from tests.spark.sink.test_standing import Log
from tests.spark.sink.twin import MemoryCluster, World


class LaggingLog:
    """The leader that told the end is gone; the next one has every record, and learns step by step that they count."""

    topic = topic_of("s")
    servers = "memory:1"
    first = 0

    def __init__(self, records: list[Record], high_watermarks: list[int]) -> None:
        self._records = records
        self._high_watermarks = high_watermarks
        self.produced = bytearray()

    async def partition_count(self) -> int:
        return 1

    async def create(self, config: Mapping[str, str]) -> None:
        raise AssertionError("it is there")

    async def cleanup_policy(self) -> str | None:
        return "compact"

    async def bounds(self) -> tuple[int, int]:
        return self.first, len(self._records)

    async def produce(self, batch: bytearray, transactional_id: str | None = None) -> int:
        self.produced = batch
        return len(self._records)

    async def fetch(self, offset: int) -> Fetched:
        if offset > len(self._records):
            raise OutOfRange
        end = self._high_watermarks.pop(0) if self._high_watermarks else len(self._records)
        found = self._records[offset:end]
        return Fetched(found, max(offset, end), end)


async def _at_once(_: float) -> None:
    pass


def keeper(log: LaggingLog) -> StateTopic:
    return StateTopic(log, KIND, SinkRegister, Patience(), clock=Clock(lambda: 0.0, _at_once))


def test_what_a_new_leader_does_not_show_yet_is_waited_for_and_not_passed_over() -> None:
    """Passed over, a claim would be taken for one that nobody made, and the lane's rows would go out a second time."""
    log = Log()
    log.sink()
    log.claim(0, 0, "first")
    for high_watermark in range(len(log.records)):
        topic = keeper(LaggingLog(log.records, [high_watermark, high_watermark]))
        register = asyncio.run(topic.read())
        assert (register.owner, register.open) == (log.register.owner, log.register.open)
        assert register.next_offset == len(log.records)


def test_a_topic_that_was_just_made_is_waited_for_as_long_as_brokers_take_to_hear_of_it() -> None:
    """A broker that is busy with other topics knows nothing of it for seconds; it is not taken for one that is gone."""
    made_s, now_s = 20.0, 0.0

    class Busy(LaggingLog):
        async def create(self, config: Mapping[str, str]) -> None:
            pass

        async def bounds(self) -> tuple[int, int]:
            if now_s < made_s:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, retriable=True))
            return 0, 0

    async def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s

    patience = Patience(total_s=60.0, lag_s=keepers.UNKNOWN_S)
    topic = StateTopic(Busy([], []), KIND, SinkRegister, patience, clock=Clock(lambda: now_s, sleep))
    asyncio.run(topic.create())
    assert made_s <= now_s < made_s + 2
    made_s = 2 * now_s
    with pytest.raises(MayPass, match=r"topic oncelog\.sink\.s, which holds the sink's state, is not there any more"):
        asyncio.run(topic.read())


def test_a_topic_that_lost_what_was_read_is_told_in_words() -> None:
    log = Log()
    log.sink()
    topic = keeper(LaggingLog(log.records, []))
    with pytest.raises(KafkaException, match=r"topic oncelog\.sink\.s: .* up to offset 9 is not there"):
        asyncio.run(topic.read_to(SinkRegister(next_offset=9), 9))


def test_no_state_is_stored_that_is_too_large_to_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small compression makes it."""
    most_bytes = 20_000
    monkeypatch.setattr(keepers, "MOST_VALUE_BYTES", most_bytes)
    log = LaggingLog([], [])
    old: list[tuple[bytes, None]] = [(b"0/mark/%d" % lane, None) for lane in range(100)]
    large = json.dumps({VERSION_KEY: VERSION, "kind": "unknown", "of": "x" * (most_bytes - 5_000)}).encode()
    asyncio.run(keeper(log).append(SinkRegister(), [(b"0/unknown/n", large), *old]))
    assert len(records_of(log.produced, limit_bytes=most_bytes)) == 1 + len(old)
    with pytest.raises(SinkRefused, match=r"the state of oncelog.sink.s is \d+ bytes, and may be 20000: there are too"):
        asyncio.run(keeper(log).append(SinkRegister(), [(b"0/state/n", bytes(most_bytes))]))


def test_a_leader_that_shows_less_than_was_saved_is_not_taken_for_a_checkpoint_that_is_newer_than_the_sink() -> None:
    log = Log()
    log.sink()
    first = log.state(0, 0)
    known = log.register
    log.state(1, first)

    class Lagging(MemoryCluster):
        def run(self, coroutine: Any) -> Any:
            return asyncio.run(coroutine)

        def log(self, sink: str) -> StateTopic:
            return keeper(LaggingLog(log.records, [len(log.records) - 1]))

    cluster = Lagging(World(Random(1)), {"register": known})
    register = read_on(cluster, "s", batch=2)
    assert register is not None and register.next_batch == 2
    assert cluster.register("s") is register


def test_a_broker_that_has_not_heard_of_the_topic_is_not_taken_for_a_sink_that_lost_its_state() -> None:
    """Told that it is lost, somebody may begin with another name, and what stands of the batch would stand there
    twice."""
    log = Log()
    log.sink()
    log.state(1, log.state(0, 0))
    heard_s, now_s = 1.5, 0.0

    class Behind(LaggingLog):
        async def partition_count(self) -> int:
            return int(now_s >= heard_s)

    async def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s

    class Lagging(MemoryCluster):
        def run(self, coroutine: Any) -> Any:
            return asyncio.run(coroutine)

        def log(self, sink: str) -> StateTopic:
            patience = Patience(total_s=60.0, lag_s=keepers.UNKNOWN_S)
            return StateTopic(Behind(log.records, []), KIND, SinkRegister, patience, clock=Clock(lambda: now_s, sleep))

    def due(batch: int) -> DueBatch:
        options = sink_options({"kafka.bootstrap.servers": "memory:1", "topic": "out", "sink.name": "s"})
        return DueBatch(options, LaneTask("q", batch, 0), Lagging(World(Random(1)), {}))

    register = due(2).read()
    assert register is not None and register.next_batch == 2
    heard_s, now_s = 100.0, 0.0
    assert due(0).read() is None and now_s == 0.0, "a sink that begins waits for nobody"
    with pytest.raises(SinkRefused, match="has nothing saved, and the checkpoint runs batch 2"):
        due(2).begin(due(2).read())
    assert keepers.UNKNOWN_S <= now_s < keepers.UNKNOWN_S + 1


def test_a_topic_of_which_somebody_removed_what_counts_is_not_taken_for_a_new_one() -> None:
    """The first batch may stand in the output in part: begun anew, it would stand there twice."""
    log = Log()
    log.sink()
    log.claim(0, 0, "first")
    first = log.state(0, 0)
    second = log.state(1, first)
    log.state(2, second)
    for cut in range(1, len(log.records) + 1):
        for length in {cut, len(log.records)}:
            topic = LaggingLog(log.records[:length], [])
            topic.first = cut
            if cut <= second < length:
                assert asyncio.run(keeper(topic).read()).next_batch == 3, "nothing is gone that a reader needs"
                continue
            with pytest.raises(
                SinkRefused, match=rf"topic oncelog\.sink\.s begins at offset {cut}: .*sink\.first\.batch"
            ):
                asyncio.run(keeper(topic).read())
