"""Transactions of several producers through any life that hypothesis thinks of: a reader of committed records sees
those of transactions that were committed, and nothing of the others, in the order of the log."""

from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.log.config import LogConfig
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from oncelog.producers import Decision
from tests.depth import scaled
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, KAFKA_PID, at, open_log, put
from tests.log.transactions import committed, end, put_in_transaction

CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    retention_ms=-1,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=20,
)
KEYS = (b"a", b"b", b"c")
PRODUCERS = st.integers(0, 2)


@dataclass(frozen=True)
class Entry:
    """One batch, as the outside knows it."""

    offset: int
    pid: int = -1  # nobody's: outside of transactions
    key: bytes = b""
    values: tuple[bytes, ...] = ()
    ends: bool = False
    is_commit: bool = False

    @property
    def end_offset(self) -> int:
        return self.offset + max(len(self.values), 1)


class TransactionsMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16), compacts=st.booleans())
    def begin(self, seed: int, compacts: bool) -> None:
        self.config = replace(CONFIG, cleanup_policy=("compact",) if compacts else ("delete",))
        self.ms = 0
        self.disk = MemoryDisk(seed)
        self.told: list[Entry] = []
        self.start = 0
        self.number = 0
        self.flushed_end = 0
        self.least_cut = 0
        self.compacted = False
        self.log = self.opened()

    def opened(self) -> PartitionLog:
        log = open_log(self.disk, self.config, at(self.ms))
        assert log.offline is None, log.offline
        return log

    def values(self, count: int) -> list[bytes]:
        self.number += count
        return [b"v%d" % (self.number - each) for each in range(count)]

    @rule(who=PRODUCERS, key=st.sampled_from(KEYS), count=st.integers(1, 3))
    def write(self, who: int, key: bytes, count: int) -> None:
        self.ms += 1
        pid, values = KAFKA_PID + who, self.values(count)
        staged = put_in_transaction(self.log, *values, pid=pid, key=key, now=at(self.ms))
        assert staged.decision is Decision.APPEND
        self.told.append(Entry(staged.base_offset, pid, key, tuple(values)))

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 3))
    def write_plainly(self, key: bytes, count: int) -> None:
        self.ms += 1
        values = self.values(count)
        staged = put(self.log, *values, key=key, now=at(self.ms))
        self.told.append(Entry(staged.base_offset, -1, key, tuple(values)))

    @rule(who=PRODUCERS, is_commit=st.booleans())
    def end(self, who: int, is_commit: bool) -> None:
        self.ms += 1
        marked = end(self.log, commit=is_commit, pid=KAFKA_PID + who, now=at(self.ms))
        assert marked.decision is Decision.APPEND
        self.told.append(Entry(marked.end_offset - 1, KAFKA_PID + who, ends=True, is_commit=is_commit))

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint(at(self.ms))
        self.flushed_end = self.log.next_offset

    @rule()
    def roll(self) -> None:
        if self.log.segments.active.size_bytes:
            self.log.segments.roll()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.log.next_offset - self.start) * share)
        self.starts_at(self.log.delete_before(offset, at(self.ms)))

    @precondition(lambda self: self.config.deletes)
    @rule(limit_bytes=st.integers(300, 3000))
    def retain(self, limit_bytes: int) -> None:
        self.log.configure(replace(self.config, retention_bytes=limit_bytes))
        self.log.maintain(at(self.ms))
        self.log.configure(self.config)
        self.starts_at(self.log.log_start_offset)

    def starts_at(self, offset: int) -> None:
        """What stands before it is on the disk: it may be gone, but who wrote it and what was open there is known."""
        self.start = offset
        self.flushed_end = max(self.flushed_end, offset)

    @precondition(lambda self: self.config.compacts)
    @rule(later_ms=st.sampled_from((0, 30)))
    def compact(self, later_ms: int) -> None:
        self.ms += later_ms
        self.log.compact(at(self.ms))
        self.compacted = True
        self.least_cut = self.log.segments.active.base_offset

    @rule(share=st.floats(0.5, 1))
    def cut_back(self, share: float) -> None:
        least = max(self.start, self.least_cut)
        self.forget_from(self.log.truncate_to(least + int((self.log.next_offset - least) * share)))

    def forget_from(self, offset: int) -> None:
        self.told = [each for each in self.told if each.end_offset <= offset]
        self.start = min(self.start, offset)
        self.flushed_end = min(self.flushed_end, offset)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.flushed_end = self.log.next_offset
        self.log = self.opened()

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.crash(keep_all=True)
        self.log = self.opened()

    @rule()
    def power_failure(self) -> None:
        self.disk = self.disk.crash()
        self.log = self.opened()
        assert self.log.next_offset >= self.flushed_end
        self.forget_from(self.log.next_offset)

    @rule()
    def lose_the_list(self) -> None:
        """A start makes it anew."""
        self.log.close()
        self.flushed_end = self.log.next_offset
        if self.disk.exists(f"{FOLDER}/aborted"):
            self.disk.unlink(f"{FOLDER}/aborted")
        self.log = self.opened()

    # What is to be read

    def expected(self) -> tuple[int, list[tuple[int, bytes, bytes]]]:
        """The last stable offset, and what is committed before it."""
        opened: dict[int, list[Entry]] = {}
        visible: list[Entry] = []
        for entry in self.told:
            if entry.ends:
                ended = opened.pop(entry.pid, [])
                visible += ended if entry.is_commit else ()
            elif entry.pid < 0:
                visible.append(entry)
            else:
                opened.setdefault(entry.pid, []).append(entry)
        firsts = [entries[0].offset for entries in opened.values()]
        stable = max(min([*firsts, self.log.next_offset]), self.start)
        records = [
            (entry.offset + place, entry.key, value)
            for entry in visible
            for place, value in enumerate(entry.values)
            if self.start <= entry.offset + place and entry.end_offset <= stable
        ]
        return stable, sorted(records)

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        if not hasattr(self, "log"):
            return
        stable, records = self.expected()
        assert self.log.stable_offset == stable
        found = [(record.offset, record.key or b"", record.value or b"") for record in committed(self.log)]
        if self.compacted:
            assert set(found) <= set(records)
            # What an open transaction has written, or one that ended behind it, is no reason for a record to go.
            assert {key: (offset, value) for offset, key, value in found} == {
                key: (offset, value) for offset, key, value in records
            }
        else:
            assert found == records

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            checked = check_partition(self.disk, FOLDER)
            assert checked.damage == [], checked.damage


TransactionsMachine.TestCase.settings = settings(
    max_examples=scaled(100),
    stateful_step_count=40,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
test_any_life_of_transactions_shows_readers_the_committed_ones = TransactionsMachine.TestCase
