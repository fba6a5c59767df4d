"""What is harmed: a data folder that a server has written, and what it had acknowledged when it ended."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kio.schema.errors import ErrorCode

from oncelog.log.disk import RealDisk
from oncelog.log.knowledge import known_of, opened_of
from oncelog.log.partition_checking import check_partition
from tests.harms.forked import ForkedOncelog
from tests.raw import RawConnection, Rec, ServerClosed, batch
from tests.waiting import until

PLAIN, KEYED = "plain", "keyed"
PARTITIONS = {PLAIN: 3, KEYED: 1}
GROUP = "readers"
KEYS = 12
FIRST_MS = 1_700_000_000_000
STEP_MS = 1000
BIG_BYTES = 3000
PATIENCE_S = 300
SIZES = (0, 9, 400, 9, 9, 50, 0)

Place = tuple[str, int]  # topic and partition


@dataclass
class Ledger:
    """Of each partition the value at each offset that was acknowledged; and the offsets that a group committed."""

    records: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    sent: dict[Place, set[bytes]] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)  # of the compacted topic: the key at each offset
    committed: dict[Place, int] = field(default_factory=dict)
    tried: dict[Place, int] = field(default_factory=dict)

    def end(self, place: Place) -> int:
        return max(self.records.get(place, {}), default=-1) + 1


@dataclass(frozen=True)
class Story:
    folder: Path
    settings: dict[str, str]
    ending: str
    ledger: Ledger
    unknown: frozenset[str]

    def __str__(self) -> str:
        acknowledged = sum(map(len, self.ledger.records.values()))
        told = ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in self.settings.items())
        return f"{acknowledged} records, {self.ending}, {told}"


def settings_of(chance: Random) -> dict[str, str]:
    return {
        "oncelog.flush": chance.choice(("os", "os", "os", "every", "every", "interval")),
        "log.segment.bytes": chance.choice(("5000", "20000", "1048576")),
        "log.index.interval.bytes": chance.choice(("512", "4096")),
        "oncelog.recovery.max.bytes": str(2**20),
        "offsets.topic.num.partitions": "2",
        "offsets.topic.segment.bytes": chance.choice(("5000", "1048576")),
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.min.cleanable.ratio": "0.05",
        "group.initial.rebalance.delay.ms": "0",
    }


ENDINGS = ("killed", "killed", "killed at once", "killed while it is written to", "stopped")


def told(folder: Path, chance: Random, *, ending: str = "", flush: str = "") -> Story:
    """Written, and ended in one of these ways."""
    settings, ledger = settings_of(chance), Ledger()
    if flush:
        settings["oncelog.flush"] = flush
    server = ForkedOncelog(folder, settings=settings)
    ending = ending or chance.choice(ENDINGS)
    with server:
        with RawConnection(server.port) as raw:
            writer = Writer(raw, ledger, chance)
            writer.begin()
            for _ in range(chance.choice((3, 30, 120))):
                writer.step()
            if chance.random() < 0.3:  # so much that recovery points move
                writer.fill()
            if ending == "killed":  # what is known of one is known of all that was written before
                writer.write((PLAIN, 0), 1)
                until(
                    lambda: known_offset(server.data / f"{PLAIN}-0") >= ledger.end((PLAIN, 0)),
                    "the notes",
                    give_up_seconds=300,
                )
        if ending == "killed while it is written to":
            other = threading.Thread(target=write_on, args=(server.port, ledger, Random(chance.random())))
            other.start()
            other.join(chance.random() / 5)
            server.kill()
            other.join()
        elif ending == "stopped":
            server.stop()
        else:
            server.kill()
    return Story(folder / "log", settings, ending, ledger, unknown_in(folder / "log"))


def known_offset(folder: Path) -> int:
    """How far the log was, as other files than the log say. At the latest a second after a record they know of it."""
    disk = RealDisk()
    names = disk.listdir(str(folder))
    return known_of(disk, str(folder), names, opened_of(disk, str(folder), names), stayed_up=True).durable_offset


def unknown_in(data: Path) -> frozenset[str]:
    """The partitions that were killed before that, and those that never had a record."""
    return frozenset(each.name for each in data.iterdir() if each.is_dir() and not _is_known(each))


def _is_known(folder: Path) -> bool:
    known, end = known_offset(folder), check_partition(RealDisk(), str(folder), stayed_up=True).end_offset
    return known > 0 and known >= end


def write_on(port: int, ledger: Ledger, chance: Random) -> None:
    try:
        with RawConnection(port) as raw:
            writer = Writer(raw, ledger, chance)
            while True:
                writer.step()
    except (OSError, ServerClosed):
        return


class Writer:
    def __init__(self, raw: RawConnection, ledger: Ledger, chance: Random) -> None:
        self._raw = raw
        self._ledger = ledger
        self._chance = chance
        self._pid, self._epoch = raw.init_producer_id()
        self._sequences: dict[Place, int] = {}

    def begin(self) -> None:
        assert self._raw.create_topic(PLAIN, PARTITIONS[PLAIN], {"retention.ms": "-1"}) is ErrorCode.none
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        assert self._raw.create_topic(KEYED, 1, configs) is ErrorCode.none

    def step(self) -> None:
        what = self._chance.random()
        if what < 0.6:
            self.write((PLAIN, self._chance.randrange(PARTITIONS[PLAIN])), self._chance.choice((1, 2, 5)))
        elif what < 0.85:
            self.write((KEYED, 0), 1)
        else:
            self.commit((PLAIN, self._chance.randrange(PARTITIONS[PLAIN])))

    def fill(self) -> None:
        for number in range(300):
            self.write((PLAIN, number % PARTITIONS[PLAIN]), 1, filling=b"." * BIG_BYTES)

    def write(self, place: Place, count: int, filling: bytes = b"") -> bool:
        """Whether it was taken. What is sent again after a refusal is what was sent first, as from a client."""
        ledger, chance, is_keyed = self._ledger, self._chance, place[0] == KEYED
        sequence = self._sequences.get(place, 0)
        expected = ledger.end(place)
        values = [
            b"%s-%d %d.%d " % (place[0].encode(), place[1], self._pid, sequence + at)
            + (filling or b"x" * SIZES[(sequence + at) % len(SIZES)])
            for at in range(count)
        ]
        key = b"k%d" % chance.randrange(KEYS) if is_keyed else None
        ledger.sent.setdefault(place, set()).update(values)
        records = [Rec(value, key, timestamp_delta_ms=at * STEP_MS) for at, value in enumerate(values)]
        sent = batch(
            records,
            pid=self._pid,
            epoch=self._epoch,
            sequence=sequence,
            codec=chance.choice((0, 0, 3)),
            timestamp_ms=FIRST_MS + expected * STEP_MS,
        )
        answer = self._raw.produce(*place, sent)
        if answer.error_code is not ErrorCode.none:
            return False
        self._sequences[place] = sequence + count
        for at, value in enumerate(values):
            ledger.records.setdefault(place, {})[answer.base_offset + at] = value
            if key is not None:
                ledger.keys[answer.base_offset + at] = key
        return True

    def commit(self, place: Place) -> None:
        offset = self._ledger.end(place)
        self._ledger.tried[place] = offset
        part = {"partition_index": place[1], "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": place[0], "partitions": [part]}]
        answer = self._raw.call("offset_commit", 7, group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)
        if answer.topics[0].partitions[0].error_code is ErrorCode.none:  # else the coordinator is coming up
            self._ledger.committed[place] = offset
