"""The topic in which a sink keeps its state is compacted at every step of every batch, and tombstones go at once: what
counts stays, and nobody misses what went."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from oncelog.embedded import Server
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import batch_of_key, topic_of
from tests.peers.server_process import ServerProcess
from tests.spark import milestones as here
from tests.spark.copying.support import stored
from tests.spark.own_server import compact, own_server
from tests.spark.sink.support import Reachable, Rows, Sink, cut, make_topic, numbers, values, values_of
from tests.spark.sink.test_transactional import TransactionalSink
from tests.waiting import until

AT_ONCE = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0", "segment.ms": "1"}
BATCHES = 5
KINDS = pytest.mark.parametrize("kind", [Sink, TransactionalSink])


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    with own_server() as server:
        yield server


def batches_of(server: Reachable, state: str) -> list[int]:
    """Of which records stand there that were not removed."""
    found = [each.record for each in stored(server.bootstrap_servers, state)]
    return sorted({batch_of_key(key) or 0 for key, value, *_ in found if value is not None})


def lanes_of(batch: int) -> Sequence[Rows]:
    """One of them comes and goes."""
    first = batch * 1000
    return [numbers(first, first + 100), numbers(first + 100, first + 130)][: 1 + batch % 2]


def write_batches(sink: Sink, after: Callable[[int], object] = lambda batch: None) -> list[bytes]:
    """Each with an attempt that is lost half-way, and once more, since Spark does not know that it is written."""
    written: list[Rows] = []
    for batch in range(BATCHES):
        lanes = lanes_of(batch) if type(sink) is Sink else lanes_of(batch)[:1]
        sink.lane(batch, 0, cut(lanes[0][:60], 30))
        for _ in range(2):
            sink.run(batch, lanes, 30)
            after(batch)
        written += lanes
    with pytest.raises(SinkRefused, match=rf"runs batch 2, and sink .* has saved batch {BATCHES - 1}"):
        sink.run(2, lanes_of(2)[:1])
    return values_of(*written)


def seen(sink: Sink, server: Reachable, topic: str) -> list[bytes | None]:
    return [*sink.seen()] if isinstance(sink, TransactionalSink) else values(server, topic)


@pytest.mark.thorough
@KINDS
def test_a_sink_writes_each_row_once_though_its_state_is_compacted_at_every_step(
    own: Server, topic: str, monkeypatch: pytest.MonkeyPatch, kind: type[Sink]
) -> None:
    make_topic(own, topic)
    sink = kind(own, topic)
    state = topic_of(sink.query)
    make_topic(own, state, 1, **AT_ONCE)
    monkeypatch.setattr(here, "reached", lambda step, facts: compact(own, state))
    wanted = write_batches(sink)
    assert seen(sink, own, topic) == wanted
    assert batches_of(own, state)[0] >= BATCHES - 4, "what the last driver but one removed is gone"


@pytest.mark.thorough
@KINDS
def test_a_sink_goes_on_behind_kafkas_own_cleaner(kafka: ServerProcess, topic: str, kind: type[Sink]) -> None:
    make_topic(kafka, topic)
    sink = kind(kafka, topic)
    state = topic_of(sink.query)
    make_topic(kafka, state, 1, **AT_ONCE)

    def compacted(batch: int) -> None:
        until(lambda: batches_of(kafka, state)[0] >= batch - 3, "Kafka to compact", give_up_seconds=120.0)

    wanted = write_batches(sink, compacted)
    assert seen(sink, kafka, topic) == wanted
