"""Lives of one saved producer on one partition: it writes, saves, is killed and resumed, from any of its last saves.

The broker is Kafka's, which forgets a producer by its records' timestamps, some while after it might, and takes any
slot of one that it does not know; or oncelog's, with leases and fences. A process may be put to sleep with a stamped
batch, which arrives when the broker has forgotten who filled its slots. A disk may be restored from a copy.
"""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from oncelog.producers.sequences import NO_SEQUENCE, SEQUENCES, records_behind, sequence_after
from oncelog.slots import HighWater, Identity, Place
from oncelog.slots.chain import SavedPartition, behind, opened
from oncelog.slots.errors import CannotTell
from oncelog.slots.lease import ends_by
from oncelog.slots.limits import remembered_ms
from oncelog.slots.questions import Ask, End
from oncelog.slots.resuming import Answer, LogRead, Resuming
from oncelog.slots.standing import filled_since

PLACE = Place("t", 0)
FORGET_MS = 1_000
LIFETIME_MS = 1_500
MOST_SAVES = 3  # that somebody may go on from
FIRST_KAFKA_PID = 1 << 32


class Batch(NamedTuple):
    offset: int
    identity: Identity
    first_sequence: int
    records: tuple[int, ...]  # numbers of what the application produces; none: somebody else's
    timestamp_ms: int
    is_late: bool = False

    @property
    def end_offset(self) -> int:
        return self.offset + max(1, len(self.records))

    @property
    def last_sequence(self) -> int:
        return sequence_after(self.first_sequence, len(self.records) - 1)


class Saved(NamedTuple):
    partition: SavedPartition
    position: int  # the number of the first record behind it


@dataclass
class Broker:
    random: Random
    is_leased: bool
    log: list[Batch] = field(default_factory=list)
    known: dict[int, HighWater] = field(default_factory=dict)
    fenced: dict[int, int] = field(default_factory=dict)  # generations, of leases
    pids: int = 0

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    def grant(self, now_ms: int) -> Identity:
        self.pids += 1
        if self.is_leased:
            return Identity(self.pids, self.random.randrange(100), now_ms + LIFETIME_MS)
        return Identity(FIRST_KAFKA_PID + self.pids, 0)

    def forget(self, now_ms: int) -> None:
        """The check comes when it comes; leases are forgotten by their arrival, far beyond their end."""
        after_ms = 3 * LIFETIME_MS if self.is_leased else FORGET_MS
        due = [pid for pid, each in self.known.items() if each.last_timestamp_ms <= now_ms - after_ms]
        for pid in due:
            if self.random.random() < 0.4:
                del self.known[pid]

    def append(self, batch: Batch, now_ms: int) -> bool:
        """Whether it is stored, now or before."""
        pid, generation, end_ms = batch.identity
        known = self.known.get(pid)
        if self.is_leased:
            is_new = not batch.first_sequence and now_ms < end_ms + LIFETIME_MS
            if generation < self.fenced.get(pid, 0) or (known is None and not is_new):
                return False
        if known is not None and batch.first_sequence != sequence_after(known.last_sequence):
            return (filled_since(known.last_sequence, batch.first_sequence) or 0) >= len(batch.records)
        self.log.append(batch._replace(offset=self.end_offset))
        self.known[pid] = HighWater(generation, batch.last_sequence, batch.timestamp_ms)
        return True

    def answer(self, asked: Ask, saved: SavedPartition, now_ms: int) -> Answer:
        last = saved.last
        if asked is Ask.MEMORY:
            return self.known.get(last.identity.pid)
        if asked is Ask.FENCE:
            known = self.known.get(last.identity.pid)
            if known is None and now_ms >= last.identity.expires_at_ms:
                return None
            self.fenced[last.identity.pid] = generation = max(self.fenced.get(last.identity.pid, 0), 1_000) + 1
            return HighWater(generation, NO_SEQUENCE if known is None else known.last_sequence)
        due = last.next_sequence
        for batch in self.log:
            if batch.identity.pid == last.identity.pid and batch.offset >= saved.next_offset:
                ahead = records_behind(batch.last_sequence, due)
                due = sequence_after(due, ahead) if ahead <= len(batch.records) else due
        return LogRead(records_behind(due - 1, last.next_sequence), self.end_offset)


@dataclass
class Process:
    partition: SavedPartition
    position: int
    known_ms: int  # when it was last sure that its next slot is free

    def moved(self, records: int, next_offset: int) -> None:
        spans = behind(self.partition.spans, records)
        self.partition = SavedPartition(next_offset=max(next_offset, self.partition.next_offset), spans=spans)
        self.position += records


class World:
    def __init__(self, seed: int, *, is_leased: bool) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.is_leased = is_leased
        self.broker = Broker(self.random, is_leased)
        self.sleeping: list[Batch] = []
        self.is_restored = False  # so that a resume may be refused
        self.is_over = False
        first = self.broker.grant(self.now_ms)
        begin = 0 if is_leased else self.random.choice((0, SEQUENCES - 5))
        self.saves = [Saved(opened(first, begin, 0), 0)]
        self.process: Process | None = Process(*self.saves[0], self.now_ms)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.random.choice((1, 20, 200, 200, 2 * FORGET_MS))
            self.broker.forget(self.now_ms)
            self.random.choice((self.write, self.write, self.save, self.resume, self.others_write, self.oversleep))()
            if not self.is_restored and self.random.random() < 0.01:
                self.restore()
            if self.is_over:
                return
            self.check()
        self.go_on_at_last()

    # --- what happens

    def write(self) -> None:
        process = self.process
        is_unsure = process is None or self.now_ms >= process.known_ms + remembered_ms(FORGET_MS)
        if process is None or is_unsure or ends_by(process.partition.last.identity, self.now_ms):
            self.resume()
            return
        identity = process.partition.last.identity
        first = process.partition.last.next_sequence
        records = tuple(range(process.position, process.position + self.random.randint(1, 3)))
        batch = Batch(-1, identity, first, records, self.now_ms)
        if self.random.random() < 0.15:
            self.sleeping.append(batch._replace(is_late=True))  # another copy of the job had stamped the same
        if self.broker.append(batch, self.now_ms):
            process.moved(len(records), self.broker.end_offset)
            process.known_ms = self.now_ms
        else:
            assert not self.is_leased, "what was fenced off is gone on with"
            self.resume()

    def save(self) -> None:
        if self.process is not None:
            self.saves = [*self.saves, Saved(self.process.partition, self.process.position)][-MOST_SAVES:]

    def others_write(self) -> None:
        self.broker.log.append(Batch(self.broker.end_offset, Identity(-1, -1), -1, (), self.now_ms))

    def oversleep(self) -> None:
        """The sleepers wake up, and what they had stamped is sent."""
        for batch in self.sleeping:
            if batch.timestamp_ms <= self.now_ms - FORGET_MS:
                self.broker.append(batch, self.now_ms)
        self.sleeping = [each for each in self.sleeping if each.timestamp_ms > self.now_ms - FORGET_MS]

    def restore(self) -> None:
        """The broker comes back with an older disk."""
        self.is_restored = True
        self.sleeping.clear()
        del self.broker.log[self.random.randint(0, len(self.broker.log)) :]
        self.broker.known = {
            each.identity.pid: HighWater(each.identity.generation, each.last_sequence, each.timestamp_ms)
            for each in self.broker.log
            if each.records
        }
        stored = len({number for batch in self.broker.log for number in batch.records})
        saved = self.random.choice(self.saves)
        self.saves = [saved]
        self.resume()
        if saved.position > stored:
            # Of an identity that had written nothing nothing can be missed.
            assert self.is_over or not saved.partition.last.next_sequence, "what was lost is not missed"
            self.is_over = True

    def resume(self) -> None:
        saved = self.random.choice(self.saves) if self.random.random() < 0.3 else self.saves[-1]
        resuming = Resuming(
            PLACE,
            saved.partition,
            self.now_ms,
            is_leased=self.is_leased,
            remembered_ms=remembered_ms(FORGET_MS),
        )
        try:
            while isinstance(resuming.asks, Ask):
                resuming.answered(self.broker.answer(resuming.asks, saved.partition, self.now_ms))
        except CannotTell as refused:
            # A sleeper's batch looks like a lost one; that passes, as soon as the broker has forgotten it.
            self.refuse(refused)
            return
        is_another = resuming.asks is End.ANOTHER_LEASE
        partition = resuming.resumed(self.broker.grant(self.now_ms) if is_another else None)
        if is_another:
            self.saves = [Saved(partition, saved.position)]  # before anything is sent: nobody goes on from an older one
        elif self.random.random() < 0.3:
            self.saves.append(Saved(partition, saved.position))
        assert not ends_by(partition.last.identity, self.now_ms), "a lease that has ended is gone on with"
        self.process = Process(partition, saved.position, self.now_ms)
        if partition.records_to_drop:
            behind_them = self.behind_record(saved.position + partition.records_to_drop - 1)
            if behind_them < 0:  # which the replay finds when it reads them back
                self.refuse("they are not there")
                return
            self.process.moved(partition.records_to_drop, behind_them)

    def refuse(self, why: object) -> None:
        """A sleeper's batch looks like a lost one; that passes, as soon as the broker has forgotten it."""
        assert self.is_restored or any(batch.is_late for batch in self.broker.log), f"refused without need: {why}"
        self.process, self.is_over = None, self.is_restored

    def behind_record(self, number: int) -> int:
        """Where the replay of it ends; -1 where it is not there."""
        ends = (each.offset + each.records.index(number) + 1 for each in self.broker.log if number in each.records)
        return next(ends, -1)

    # --- what must be true

    def check(self) -> None:
        stored = 0
        for batch in self.broker.log:
            for number in batch.records:
                if number == stored:
                    stored += 1
                else:
                    assert number < stored, f"{number} follows {stored - 1}"
                    assert batch.is_late and not self.is_leased, f"{number} stands twice"
            assert not ends_by(batch.identity, batch.timestamp_ms), "sent on a lease that had ended"

    def go_on_at_last(self) -> None:
        """Whatever came before: after a while of quiet a resume can write."""
        self.sleeping.clear()
        before = self.broker.end_offset
        for _ in range(20):
            self.now_ms += 2 * FORGET_MS
            self.broker.forget(self.now_ms)
            self.resume()
            if self.is_over:
                return
            self.write()  # what a late batch is in the way of passes, too
            if self.broker.end_offset > before:
                break
        self.check()
        assert self.broker.end_offset > before, "nobody can go on"
