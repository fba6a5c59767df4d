"""One simulated history: an application, the machine, and the network to its cluster, all moved by one seed."""

import random
from collections import Counter

from oncelog.client.fetching.events import Chunk, Event, Failed
from oncelog.client.fetching.fetcher import Fetcher
from oncelog.client.fetching.values import (
    EARLIEST,
    Action,
    Fetch,
    FetchLimits,
    FindEpochEnds,
    FindOffsets,
    NeedCommitted,
    NeedMetadata,
)
from oncelog.error_codes import ErrorCodes
from oncelog.records.header import headers
from oncelog.records.read import records_of
from oncelog.slots import AnyPlace
from tests.client.fetching.cluster import SimulatedCluster

PARTITIONS: list[AnyPlace] = [("a", 0), ("a", 1), ("b", 0)]
LIMITS = FetchLimits(
    partition_max_bytes=400, max_bytes=900, queued_bytes=2_000, queued_records=20, reset="earliest", reports_end=True
)


class View:
    """What the application has of one partition. It must never have a gap, nor anything that the log never had."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[tuple[int, bytes]] = []

    @property
    def next_offset(self) -> int:
        return self.records[-1][0] + 1 if self.records else self.start

    @property
    def epoch(self) -> int:
        return int(self.records[-1][1].split(b"@")[1]) if self.records else -1

    def cut(self, offset: int) -> None:
        self.records = [each for each in self.records if each[0] < offset]


class History:
    def __init__(self, seed: int, limits: FetchLimits = LIMITS) -> None:
        self.chance = random.Random(seed)
        self.cluster = SimulatedCluster(PARTITIONS, self.chance)
        self.limits = limits
        self.machine = Fetcher(limits)
        self.views = {each: View() for each in PARTITIONS}
        self.queue: list[Event] = []
        self.under_way: list[Action] = []
        self.now_ms = 0
        self.truncations = 0
        self.seen: Counter[str] = Counter()
        for each in PARTITIONS:
            self.machine.assign(each, EARLIEST)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.chance.choice(self.STEPS)(self)
            self._let_it_act()
        self._settle()

    def _let_it_act(self) -> None:
        for action in self.machine.actions(self.now_ms):
            self.seen[type(action).__name__] += 1
            self.under_way.append(action)
        self.queue.extend(self.machine.events())
        nodes = Counter(each.node_id for each in self.under_way if isinstance(each, Fetch))
        assert all(count == 1 for count in nodes.values()), "two fetches under way to one broker"
        largest = max(self.limits.partition_max_bytes, 400)
        assert self.machine.queued_bytes <= self.limits.queued_bytes + largest * len(PARTITIONS)

    # --- what may happen

    def _append(self) -> None:
        self.cluster.partitions[self.chance.choice(PARTITIONS)].append()

    def _replicate(self) -> None:
        self.cluster.partitions[self.chance.choice(PARTITIONS)].replicate()

    def _elect(self) -> None:
        if self.chance.random() < 0.1:
            self.cluster.partitions[self.chance.choice(PARTITIONS)].elect()

    def _answer(self) -> None:
        if self.under_way:
            action = self.under_way.pop(self.chance.randrange(len(self.under_way)))
            if self.cluster.is_faulty and self.chance.random() < 0.1:
                self._lose(action)
            else:
                self._give(action)

    def _lose(self, action: Action) -> None:
        if isinstance(action, NeedMetadata):
            self.machine.metadata_failed(self.now_ms)
        else:
            self.machine.lost(action.request_id, ErrorCodes._TRANSPORT, self.now_ms)

    def _give(self, action: Action) -> None:
        machine, now_ms = self.machine, self.now_ms
        if isinstance(action, Fetch):
            machine.fetched(action.request_id, self.cluster.fetch(action), now_ms)
        elif isinstance(action, FindOffsets):
            machine.offsets_found(action.request_id, self.cluster.offsets(action), now_ms)
        elif isinstance(action, FindEpochEnds):
            machine.epoch_ends_found(action.request_id, self.cluster.epoch_ends(action), now_ms)
        elif isinstance(action, NeedCommitted):
            machine.committed(action.request_id, {}, now_ms)
        else:
            machine.leaders(self.cluster.metadata(), {}, now_ms)

    def _wait(self) -> None:
        self.now_ms += self.chance.randint(1, 200)

    def _take(self) -> None:
        if not self.queue:
            return
        event = self.queue.pop(0)
        if isinstance(event, Chunk):
            self.machine.taken(event)
        if not event.is_current:
            return
        view = self.views[event.cursor.partition]
        if isinstance(event, Chunk):
            self._read(view, event)
        elif isinstance(event, Failed):
            assert event.code == ErrorCodes._LOG_TRUNCATION, event
            self.truncations += 1
            view.cut(max(event.offset, 0))

    def _read(self, view: View, chunk: Chunk) -> None:
        assert chunk.start_offset == view.next_offset, f"{chunk.start_offset} does not follow {view.next_offset}"
        for at, _ in headers(chunk.records):
            found = records_of(chunk.records, at)
            view.records += [(each.offset, each.value or b"") for each in found if each.offset >= chunk.start_offset]

    def _take_all(self) -> None:
        """Whoever chooses a place has heard what there was to hear: a truncation that nobody heard of is found again,
        but how far back it reaches is then not known any more."""
        while self.queue:
            self._take()

    def _seek(self) -> None:
        """Back to somewhere in what was read, as an application does that kept offset and epoch."""
        self._take_all()
        partition = self.chance.choice(PARTITIONS)
        view = self.views[partition]
        if self.chance.random() < 0.2 and view.records:
            view.cut(self.chance.choice(view.records)[0])
            self.machine.seek(partition, view.next_offset, view.epoch)

    def _pause(self) -> None:
        self._take_all()
        partition = self.chance.choice(PARTITIONS)
        if self.machine.cursors[partition].is_paused:
            self.machine.resume(partition)
        elif self.chance.random() < 0.2:
            view = self.views[partition]
            self.machine.pause(partition)
            self.machine.rewind(partition, (view.next_offset, view.epoch))

    STEPS = (_append, _append, _replicate, _elect, _answer, _answer, _answer, _wait, _take, _take, _seek, _pause)

    def _settle(self) -> None:
        """Nothing fails any more: soon everything must have been read."""
        self.cluster.is_faulty = False
        for each in PARTITIONS:
            self.machine.resume(each)
        for _ in range(2_000):
            if self.is_finished:
                return
            self._wait()
            self._let_it_act()
            while self.under_way:
                self._answer()
                self.queue.extend(self.machine.events())
            while self.queue:
                self._take()
        raise AssertionError(f"it stopped at {[(each, view.next_offset) for each, view in self.views.items()]}")

    @property
    def is_finished(self) -> bool:
        return all(self.views[each].records == self.cluster.partitions[each].log.values() for each in PARTITIONS)
