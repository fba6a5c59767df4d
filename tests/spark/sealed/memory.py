"""A sealed sink's surroundings in memory: storage, a query whose rows never repeat, lanes that keep slots, and a Spark
that runs a batch again until it is through. Every step is a point at which a driver may be stopped for good."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from oncelog.spark.sealed import batch as batch_module
from oncelog.spark.sealed.batch import Sealing
from oncelog.spark.sealed.manifest import Manifest, Owner, SealedError, SealedFile
from oncelog.spark.sink.errors import SinkRefused
from tests.model.turns import Actor, Killed, passing, point

OWNER = Owner(query="query-1", sink="sink-1")


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    """The named steps are points as well."""
    monkeypatch.setattr(batch_module, "reached", lambda step, **facts: point(step))


@dataclass
class MemoryStorage:
    files: dict[str, bytes] = field(default_factory=dict)

    def names(self) -> list[str]:
        point("list")
        return sorted({name.partition("/")[0] for name in self.files})

    def read(self, name: str) -> bytes | None:
        point(f"read {name}")
        return self.files.get(name)

    def create(self, name: str, data: bytes) -> bool:
        point(f"create {name}")
        if name in self.files:
            return False
        self.files[name] = data
        point(f"created {name}")
        return True

    def remove(self, name: str) -> None:
        for each in [each for each in self.files if each == name or each.startswith(f"{name}/")]:
            point(f"remove {each}")
            self.files.pop(each, None)

    def where(self, name: str) -> str:
        return f"memory:/{name}"


@dataclass
class Frame:
    """A batch's frame: other rows each time that it is run, in three partitions of which one is empty."""

    batch: int
    runs: int = 0

    def run(self, numbers: Iterator[int]) -> list[list[str]]:
        self.runs += 1
        if self.batch % 4 == 3:
            return [[], []]
        return [[f"{self.batch}.{at}.{next(numbers)}" for _ in range(at * 2)] for at in (1, 0, 2)]


@dataclass
class MemoryRows:
    storage: MemoryStorage
    numbers: Iterator[int]
    layout: str = "memory"

    def write(self, frame: Frame, folder: str) -> tuple[SealedFile, ...]:
        files = []
        for at, rows in enumerate(frame.run(self.numbers)):
            point(f"write {at}")
            if rows:
                data = "\n".join(rows).encode()
                self.storage.files[f"{folder}/{at}"] = data
                files.append(SealedFile(name=str(at), rows=len(rows), size_bytes=len(data)))
        return tuple(files)

    def advance(self, frame: Frame) -> None:
        frame.run(self.numbers)

    def check(self, manifest: Manifest) -> None:
        for file in manifest.files:
            found = self.storage.files.get(f"{manifest.folder}/{file.name}")
            if found is None or len(found) != file.size_bytes:
                raise SealedError(f"{manifest.folder}/{file.name} is not there")


@dataclass
class Log:
    """What stands in the destination: the slots of each lane and batch, and which batch was saved last."""

    slots: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    saved: int | None = None
    lanes_of_saved: int = 0

    @property
    def records(self) -> list[str]:
        return [record for place in sorted(self.slots) for record in self.slots[place]]


@dataclass
class MemoryLanes:
    """By the direct sink's rules: a slot is filled once, a replay is compared, a state is saved for the next batch."""

    log: Log
    storage: MemoryStorage

    def is_saved(self, batch: int) -> bool:
        saved = self.log.saved
        if batch not in (saved, 0 if saved is None else saved + 1):
            raise SinkRefused(f"batch {batch}, and saved is {saved}")
        return batch == saved

    def send(self, frame: Frame, manifest: Manifest) -> None:
        is_saved = self.is_saved(manifest.batch)
        for lane, file in enumerate(manifest.files):
            data = self.storage.files.get(f"{manifest.folder}/{file.name}")
            if data is None:
                raise SealedError(f"{file.name} is gone")
            for slot, row in enumerate(data.decode().split("\n")):
                point(f"send {lane}.{slot}")
                self._fill(manifest.batch, lane, slot, row, is_saved)
        point("save")
        if not self.is_saved(manifest.batch):
            self.log.saved, self.log.lanes_of_saved = manifest.batch, len(manifest.files)
        elif self.log.lanes_of_saved != len(manifest.files):
            raise SinkRefused("another number of lanes")
        point("saved")

    def _fill(self, batch: int, lane: int, slot: int, row: str, is_saved: bool) -> None:
        filled = self.log.slots.setdefault((batch, lane), [])
        if slot < len(filled):
            if filled[slot] != row:
                raise SinkRefused(f"batch {batch}: slot {lane}.{slot} holds {filled[slot]}, and this is {row}")
        elif is_saved:
            raise SinkRefused(f"batch {batch} was saved without {row}")
        elif slot == len(filled):
            filled.append(row)
        else:
            raise SinkRefused(f"a gap before {row}")


@dataclass
class World:
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    log: Log = field(default_factory=Log)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    sealed: dict[int, list[str]] = field(default_factory=dict)  # what the first manifest of each batch held

    def driver(self, owner: Owner = OWNER) -> Sealing:
        """A driver as it is after its start."""
        return Sealing(
            storage=self.storage,
            rows=MemoryRows(self.storage, self.numbers),
            lanes=MemoryLanes(self.log, self.storage),
            owner=owner,
            unique=lambda: f"{next(self.numbers):032x}",
        )

    def note(self) -> None:
        """Remember what was published, before it is removed."""
        for name, data in self.storage.files.items():
            if name.endswith(".json") and name != "query.json":
                manifest = Manifest.from_bytes(data, name)
                rows = [
                    row
                    for file in manifest.files
                    for row in self.storage.files.get(f"{manifest.folder}/{file.name}", b"").decode().split("\n")
                ]
                self.sealed.setdefault(manifest.batch, rows)

    def check(self, batches: int) -> None:
        """Each batch stands in the log once, as it was sealed, whatever its frame yielded in other runs."""
        assert self.log.saved == batches - 1
        assert set(self.sealed) == set(range(batches))
        assert self.log.records == [row for batch in range(batches) for row in self.sealed[batch]]
        assert len(set(self.log.records)) == len(self.log.records)

    def check_room(self, last: int) -> None:
        """What is left: two batches as their manifests say, and nothing of lost races and crashes but of the last."""
        names = set(self.storage.names())
        manifests = {f"{batch}.json" for batch in (last - 1, last) if batch >= 0}
        assert {name for name in names if name.endswith(".json")} == manifests | {"query.json"}
        kept = [Manifest.from_bytes(self.storage.files[name], name) for name in manifests]
        assert {manifest.folder for manifest in kept if manifest.files} <= names
        folders = {manifest.folder for manifest in kept}
        assert {name for name in names if "-" in name and not name.startswith(f"{last}-")} <= folders


def spark(world: World, batches: int, kills: "Kills | None" = None, start: int = 0) -> list[Frame]:
    """Runs the batches in turn. A killed driver is started anew, and runs the batch again that was not committed.
    Answers the frames with which each batch came through."""
    driver = world.driver()
    frames: list[Frame] = []
    batch = start
    while batch < batches:
        frame = Frame(batch)
        try:
            with passing(kills.at if kills else lambda name: None):
                driver.run(frame, batch)
                point("commit")
        except Killed:
            driver = world.driver()
            continue
        finally:
            world.note()
        frames.append(frame)
        batch += 1
    return frames


@dataclass
class Kills:
    """Kills drivers when so many points have been passed since the last kill."""

    after: list[int]
    passed: int = 0
    seen: list[str] = field(default_factory=list)

    def at(self, name: str) -> None:
        self.seen.append(name)
        if self.after and self.passed >= self.after[0]:
            self.after.pop(0)
            self.passed = 0
            raise Killed(name)
        self.passed += 1


def take_turns(schedule: list[int], *drivers: Callable[[], Any]) -> dict[int, Exception]:
    """Several drivers at once, of which the schedule says who goes on at each point; what became of those refused."""
    choices = iter(schedule)
    actors = [Actor(f"driver {number}", driver) for number, driver in enumerate(drivers)]
    while alive := [actor for actor in actors if not actor.is_over]:
        alive[next(choices, 0) % len(alive)].go()
    failures = {number: actor.failure for number, actor in enumerate(actors) if actor.failure is not None}
    for failure in failures.values():
        if not isinstance(failure, SinkRefused):
            raise failure
    return failures
