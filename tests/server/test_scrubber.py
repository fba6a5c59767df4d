"""The slow look for rot: it goes through everything, remembers how far it is, and tells readers what it finds."""

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from oncelog.clock import DAY_MS, ManualClock, Now
from oncelog.embedded import Server
from oncelog.log.disk import RealDisk
from oncelog.log.errors import Damaged
from oncelog.log.partition import PartitionLog
from oncelog.server.exposition import exposition
from oncelog.server.metrics import Metrics
from oncelog.server.scrubber import IDLE_S, RESTS, STATE_FILE, Scrubber
from oncelog.server.topics import Topics
from tests.raw import RawConnection, batch
from tests.server.topics_support import NOW, append, open_topics

CORRUPT_MESSAGE = 2


class Scrubbed:
    """Topics, and what looks for rot in them."""

    def __init__(self, folder: Path, clock: ManualClock | None = None) -> None:
        self.topics: Topics = open_topics(folder, log_segment_bytes=600)
        self.clock = clock or ManualClock()
        self.metrics = Metrics()
        self.scrubber = Scrubber(self.topics.settings, self.topics, self.clock, RealDisk(), self.metrics)

    def filled(self, name: str, count: int = 30) -> PartitionLog:
        topic = self.topics.create(name, 1, {}, NOW)
        for number in range(count):
            append(topic.partitions[0], b"%02d" % number)
        return topic.partitions[0].log

    def steps(self, count: int) -> list[float]:
        async def run() -> list[float]:
            with ThreadPoolExecutor(1) as threads:
                return [await self.scrubber.step(threads) for _ in range(count)]

        return asyncio.run(run())

    def round(self) -> int:
        """How many bytes were read until nothing was left."""
        before = self.metrics.bytes_scrubbed
        for _ in range(1000):
            read = self.metrics.bytes_scrubbed
            self.steps(1)
            if self.metrics.bytes_scrubbed == read:
                return read - before
        raise AssertionError("a round has no end")

    def close(self) -> None:
        self.scrubber.stop()
        self.topics.close()

    @property
    def stored_bytes(self) -> int:
        return sum(log.size_bytes for log in self.topics.logs())


def harm(log: PartitionLog, offset: int) -> Path:
    """Turns a bit in the body of the batch that holds the offset."""
    segment = log.segments[log.segments.number_of(offset)]
    place = segment.find(offset)
    assert place is not None
    path = Path(segment.log_path)
    found = bytearray(path.read_bytes())
    found[place[0] + place[1] - 2] ^= 1
    path.write_bytes(found)
    return path


def test_a_round_reads_everything_and_the_next_one_begins_when_it_is_due(tmp_path: Path) -> None:
    scrubbed = Scrubbed(tmp_path)
    for name in ("one", "two"):
        scrubbed.filled(name)
    assert scrubbed.round() == scrubbed.stored_bytes
    scrubbed.clock.advance(7 * DAY_MS - 1)
    assert scrubbed.round() == 0
    scrubbed.clock.advance(1)
    assert scrubbed.round() == scrubbed.stored_bytes
    scrubbed.close()


def test_it_reads_no_faster_than_it_may_and_not_at_all_when_it_may_not(tmp_path: Path) -> None:
    scrubbed = Scrubbed(tmp_path)
    scrubbed.filled("one")
    scrubbed.topics.settings.change("oncelog.scrub.bytes.per.second", "1000")
    pauses = scrubbed.steps(3)
    assert sum(pauses) == pytest.approx(scrubbed.metrics.bytes_scrubbed / 1000)
    scrubbed.topics.settings.change("oncelog.scrub.bytes.per.second", "0")
    before = scrubbed.metrics.bytes_scrubbed
    assert min(scrubbed.steps(3)) > 1
    assert scrubbed.metrics.bytes_scrubbed == before
    scrubbed.close()


def test_where_little_takes_long_it_rests_for_many_times_as_long(tmp_path: Path) -> None:
    """A megabyte of small batches takes a hundred times as long as one of large batches."""

    class Slow(ManualClock):
        def now(self) -> Now:
            return self.advance(10)

    scrubbed = Scrubbed(tmp_path, Slow())
    scrubbed.filled("one")
    assert min(scrubbed.steps(3)) >= RESTS * 10 / 1000
    scrubbed.close()


def test_rot_is_told_and_readers_get_it_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scrubbed = Scrubbed(tmp_path)
    log = scrubbed.filled("one")
    harm(log, 5)
    assert log.read(5, 1)  # nobody knows yet
    scrubbed.round()
    with pytest.raises(Damaged):
        log.read(5, 1)
    assert log.read(4, 1) and log.read(6, 1)
    (damage,) = log.damage
    assert "the CRC of the batch of offset 5 is wrong" in damage and damage in caplog.text
    assert log.offline is None
    scrubbed.clock.advance(7 * DAY_MS)
    scrubbed.round()
    assert len(log.damage) == 1
    scrubbed.close()


def test_after_a_start_it_goes_on_where_it_was_and_looks_first_at_what_was_damaged(tmp_path: Path) -> None:
    scrubbed = Scrubbed(tmp_path)
    log = scrubbed.filled("one")
    scrubbed.filled("two")
    harm(log, 2)
    path = harm(log, 12)
    scrubbed.steps(5)
    assert len(log.damage) == 2
    read_bytes = scrubbed.metrics.bytes_scrubbed
    scrubbed.close()
    mended = bytearray(path.read_bytes())
    harm(log, 12)
    assert path.read_bytes() != mended  # as restored from a backup
    again = Scrubbed(tmp_path, scrubbed.clock)
    topic = again.topics.get("one")
    assert topic is not None
    again.steps(2)
    (damage,) = topic.partitions[0].log.damage
    assert "offset 2 is wrong" in damage
    assert read_bytes + again.round() <= again.stored_bytes + 600
    again.close()


STATE = '{"version": 1, "began_wall_ms": 0, "name": "", "offset": 0, "damage": [%s]}'
UNREADABLE = ("", "[]", '{"version": 1}', '{"version": 9, "name": "x"}', "[" * 100_000)


@pytest.mark.parametrize("state", [*UNREADABLE, STATE % '["one-0", 0, "5"]', STATE % '["one-0", 0, -5]', STATE % "5"])
def test_a_state_that_cannot_be_read_means_a_new_round(tmp_path: Path, state: str) -> None:
    (tmp_path / STATE_FILE).write_text(state)
    scrubbed = Scrubbed(tmp_path)
    scrubbed.filled("one")
    assert scrubbed.round() == scrubbed.stored_bytes
    scrubbed.close()


def test_a_want_of_descriptors_is_no_damage_and_what_was_found_before_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scrubbed = Scrubbed(tmp_path)
    harm(scrubbed.filled("one"), 12)
    scrubbed.round()
    scrubbed.close()
    again = Scrubbed(tmp_path)
    (log,) = (each for each in again.topics.logs() if each.name == "one-0")
    with monkeypatch.context() as patched:
        patched.setattr(RealDisk, "open", no_descriptors)
        assert again.steps(3) == [IDLE_S] * 3
    assert log.damage == [] and not any(segment.rotten for segment in log.segments)
    again.steps(1)
    assert len(log.damage) == 1
    again.close()


def no_descriptors(disk: RealDisk, path: str, **_: bool) -> NoReturn:
    raise OSError(errno.EMFILE, "too many open files", path)


def test_what_retention_takes_while_it_is_read_is_no_damage(tmp_path: Path) -> None:
    scrubbed = Scrubbed(tmp_path)
    log = scrubbed.filled("one")
    scrubbed.steps(2)  # the log of topics, then the first segment
    log.delete_before(20)
    assert scrubbed.round() > 0
    assert log.damage == []
    scrubbed.close()


def test_a_consumer_is_told_and_so_are_the_metrics(tmp_path: Path) -> None:
    settings = {"log.segment.bytes": 600, "oncelog.scrub.bytes.per.second": 0}
    with Server(data_dir=str(tmp_path), settings=settings) as server, RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic("orders", 1)
        for number in range(30):
            assert raw.produce("orders", 0, batch([b"%d" % number] * 3)).error_code == 0
        partition = server.broker.topics.partition("orders", 0)
        assert partition is not None
        path = Path(partition.log.segments[1].log_path)
        path.write_bytes(bytes(path.stat().st_size))
        base_offset = partition.log.segments[1].base_offset
        assert raw.fetch("orders", 0, base_offset).error_code == CORRUPT_MESSAGE
        assert raw.fetch("orders", 0, 0).error_code == 0
        assert raw.fetch("orders", 0, partition.log.segments[2].base_offset).error_code == 0
        text = "".join(server.call(lambda: list(exposition(server.broker))))
    assert 'oncelog_topic_partition_damaged_places{topic="orders",partition="0"} 1\n' in text
