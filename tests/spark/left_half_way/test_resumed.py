"""What an earlier version left half-way is gone on from: its records are read, its formats are written to the byte."""

import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import Consumer, Producer, SavedProducer, TopicPartition
from oncelog.client.register.entry import Entry
from oncelog.client.saving.committed import DEFAULT_LIMIT_BYTES, put_in, take_out
from oncelog.embedded import Server
from oncelog.slots.register import Record
from oncelog.spark.copying.lane import CLAIM, CopyRegister
from oncelog.spark.sink.lane import (
    LANE,
    MARK,
    SINK,
    STATE,
    TOPIC,
    decode,
    encode,
)
from tests.spark.copying.support import Copy, records
from tests.spark.left_half_way import make
from tests.spark.sink.support import stored, values

# By sink: the batch that Spark runs next, and how many rows of it stand in the log.
DUE = {"claimed": 0, "sent": 0, "next": 1, "saved": 0, "grown": 5, "topics": 1}
ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.gz"))


def _unpacked(archive: Path, folder: Path) -> Server:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return Server(data_dir=str(folder), settings=make.SETTINGS)


@pytest.fixture(scope="module", params=ARCHIVES, ids=[path.name.partition(".")[0] for path in ARCHIVES])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Nothing is written to it."""
    with _unpacked(request.param, tmp_path_factory.mktemp("left")) as server:
        yield server


@pytest.fixture(scope="module", params=ARCHIVES, ids=[path.name.partition(".")[0] for path in ARCHIVES])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each test goes on with what is its own."""
    with _unpacked(request.param, tmp_path_factory.mktemp("resumed")) as server:
        yield server


@pytest.mark.parametrize("sink", make.SINKS)
def test_a_sink_goes_on_and_each_row_is_there_once(server: Server, sink: str) -> None:
    batch = DUE[sink]
    for each in (batch, batch + 1):
        make.whole(server, sink, each)
    expected = Counter(
        value for number in range(batch + 2) for lane in range(2) for _, value in make.rows(number, lane)
    )
    found = Counter(value for topic in make.topics_of(sink) for value in values(server, topic))
    assert found == expected


def test_a_copy_goes_on_and_each_record_is_there_once(server: Server) -> None:
    copied = Copy(server.bootstrap_servers, "copied", "copy", name="half-way").run("now")
    assert sum(each.found for each in copied) > 0, "something had been sent and not written down"
    for partition in range(2):
        assert records(server.bootstrap_servers, "copy", partition) == records(
            server.bootstrap_servers, "copied", partition
        )


def test_a_saved_producer_goes_on_and_each_record_is_there_once(server: Server) -> None:
    servers = {"bootstrap.servers": server.bootstrap_servers}
    group = {**servers, "group.id": make.GROUP, "enable.auto.commit": False}
    positions, saved = SavedProducer.load(group)
    (position,) = positions
    assert (position.offset, position.metadata) == (2 * make.SAVED, "mine")
    with Consumer(group) as consumer, Producer(servers, saved=saved) as producer:
        consumer.commit(offsets=positions, producer=producer)
        for number in range(position.offset, 4 * make.SAVED):
            producer.produce("saved-producer", b"%d" % number, partition=number % 3)
        consumer.commit(offsets=[TopicPartition("positions", 0, 4 * make.SAVED)], producer=producer)
    for partition in range(3):
        found = [value for _, value, _, _ in records(server.bootstrap_servers, "saved-producer", partition)]
        assert found == [b"%d" % each for each in range(partition, 4 * make.SAVED, 3)]


# --- the formats, to the byte


def test_records_of_a_sinks_topic_are_written_as_they_were(left: Server) -> None:
    kinds: Counter[str] = Counter()
    for sink in make.SINKS:
        for key, value in stored(left, f"oncelog.sink.{sink}")[0]:
            if value is None:
                continue
            kind, found = decode(value)
            kinds[kind] += 1
            assert found is not None
            assert encode(kind, found) == _as_it_is_written_now(kind, value)
            assert key is not None and key.split(b"/")[1] == kind.encode()
    assert kinds.keys() == {SINK, LANE, TOPIC, MARK, STATE}


def _as_it_is_written_now(kind: str, value: bytes) -> bytes:
    """A mark says where the partitions ended, so a lane need not say when that was last asked."""
    fields = json.loads(value)
    if kind == MARK:
        fields.setdefault("ends", {})
    for lane in fields.get("lanes", {}).values():
        lane.pop("looked_at_ms", None)
    return json.dumps(fields, separators=(",", ":")).encode()


def test_records_of_a_copys_topic_are_written_as_they_were(left: Server) -> None:
    found = stored(left, "oncelog.copy.half-way")[0]
    register = CopyRegister()
    register.read(Record(offset, key, value) for offset, (key, value) in enumerate(found))
    (claim,) = register.claims
    assert (claim.key, claim.to_json()) == found[0]
    assert claim.key.startswith(CLAIM.encode())
    assert [(note.key, note.lane.to_json()) for note in register.taken()] == found[1:]


def test_committed_entries_of_a_saved_producer_are_written_as_they_were(left: Server) -> None:
    with Consumer({"bootstrap.servers": left.bootstrap_servers, "group.id": make.GROUP}) as consumer:
        places = [TopicPartition("positions", 0), *(TopicPartition("saved-producer", at) for at in range(3))]
        committed = [
            Entry(each.topic, each.partition, each.offset, each.metadata or "")
            for each in consumer.committed(places)
            if each.offset >= 0
        ]
    held = take_out(committed, SavedProducer.from_json)
    assert held.saved is not None
    assert put_in(held.positions, held.saved, held.save, limit_bytes=DEFAULT_LIMIT_BYTES) == committed
