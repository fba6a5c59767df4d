"""The log against a dumb list, through any life that hypothesis thinks of."""

import re
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.log.config import LogConfig
from oncelog.log.cutting import cut_back
from oncelog.log.partition import PartitionLog
from oncelog.producers import Decision
from tests.depth import scaled
from tests.log.memory_disk import MemoryDisk
from tests.log.support import LEASED, append, at, batch, open_log, records_in

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, retention_ms=-1, min_cleanable_dirty_ratio=0.0)
KEYS = (b"a", b"b", b"c")


@dataclass
class Dumb:
    """What should be in the log: a list, and nothing clever."""

    records: list[tuple[int, bytes, bytes]] = field(default_factory=list)  # offset, key, value
    start: int = 0
    end: int = 0
    flushed_end: int = 0
    sequence_offsets: list[int] = field(default_factory=list)  # of the leased producer: offset of each sequence
    compacted: bool = False
    compacted_end: int = 0  # replaced records below are gone, so nothing cuts back to there; nor does a leader

    def visible(self) -> list[tuple[int, bytes, bytes]]:
        return [record for record in self.records if record[0] >= self.start]

    def compacted_view(self) -> dict[bytes, tuple[int, bytes]]:
        return {key: (offset, value) for offset, key, value in self.visible()}


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16), compacts=st.booleans())
    def begin(self, seed: int, compacts: bool) -> None:
        self.config = replace(CONFIG, cleanup_policy=("compact",) if compacts else ("delete",))
        self.ms = 0
        self.dumb = Dumb()
        self.disk = MemoryDisk(seed)
        self.log = self.opened()
        self.epoch = self.log.leader_epoch

    def opened(self) -> PartitionLog:
        log = open_log(self.disk, self.config, at(self.ms))
        assert log.offline is None, log.offline
        return log

    def note(self, base_offset: int, key: bytes, values: list[bytes]) -> None:
        self.dumb.records += [(base_offset + number, key, value) for number, value in enumerate(values)]
        self.dumb.end = base_offset + len(values)

    @rule(
        key=st.sampled_from(KEYS),
        values=st.lists(st.binary(max_size=40), min_size=1, max_size=4),
        codec=st.integers(0, 4),
    )
    def append(self, key: bytes, values: list[bytes], codec: int) -> None:
        self.ms += 1
        staged = append(self.log, batch(*values, key=key, codec=codec), at(self.ms))
        assert staged.base_offset == self.dumb.end
        self.note(staged.base_offset, key, values)

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 4), back=st.integers(0, 6))
    def append_idempotently(self, key: bytes, count: int, back: int) -> None:
        """From `back` records before the next sequence on: new, a duplicate, or an overlap that is trimmed."""
        self.ms += 1
        known = self.dumb.sequence_offsets
        first = max(0, len(known) - back)
        values = [b"s%d" % (first + number) for number in range(count)]
        staged = append(self.log, batch(*values, key=key, pid=LEASED, sequence=first), at(self.ms))
        already = min(count, len(known) - first)
        if already == count:
            assert staged.decision is Decision.DUPLICATE
            assert staged.base_offset in (-1, known[first])
            return
        assert staged.decision is (Decision.TRIM if already else Decision.APPEND)
        assert staged.dropped_records == already
        assert staged.base_offset == self.dumb.end - already
        self.dumb.sequence_offsets += range(self.dumb.end, self.dumb.end + count - already)
        self.note(self.dumb.end, key, values[already:])

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.dumb.flushed_end = self.dumb.end

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint(at(self.ms))
        self.dumb.flushed_end = self.dumb.end

    @rule()
    def roll(self) -> None:
        if self.log.segments.active.size_bytes:
            self.log.segments.roll()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.dumb.start + int((self.dumb.end - self.dumb.start) * share)
        assert self.log.delete_before(offset, at(self.ms)) == offset
        self.dumb.start = offset

    @precondition(lambda self: self.config.deletes)
    @rule(limit_bytes=st.integers(300, 3000))
    def retain(self, limit_bytes: int) -> None:
        self.log.configure(replace(self.config, retention_bytes=limit_bytes))
        self.log.maintain(at(self.ms))
        self.log.configure(self.config)
        assert self.log.log_start_offset >= self.dumb.start
        assert self.log.size_bytes <= limit_bytes + self.config.segment_bytes
        self.dumb.start = self.log.log_start_offset

    @precondition(lambda self: self.config.compacts)
    @rule()
    def compact(self) -> None:
        self.log.compact(at(self.ms))
        self.dumb.compacted = True
        self.dumb.compacted_end = self.log.segments.active.base_offset

    @rule(share=st.floats(0.5, 1))
    def cut_back(self, share: float) -> None:
        dumb = self.dumb
        least = max(dumb.start, dumb.compacted_end)
        new_end = self.log.truncate_to(least + int((dumb.end - least) * share))
        if new_end == dumb.start:  # the whole batch went that the start lies in
            dumb.sequence_offsets = dumb.sequence_offsets[: self.known_sequences()]
        self.forget_from(new_end)

    def forget_from(self, end: int) -> None:
        dumb = self.dumb
        assert dumb.start <= end <= dumb.end or end <= dumb.start
        dumb.records = [record for record in dumb.records if record[0] < end]
        dumb.sequence_offsets = [offset for offset in dumb.sequence_offsets if offset < end]
        dumb.end = end
        dumb.start = min(dumb.start, end)
        dumb.flushed_end = min(dumb.flushed_end, end)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.dumb.flushed_end = self.dumb.end
        self.start_again()
        assert self.log.recovered.scanned_bytes == 0

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.crash(keep_all=True)
        self.start_again()

    @rule()
    def power_failure(self) -> None:
        self.disk = self.disk.crash()
        self.start_again(may_lose=True)

    def start_again(self, may_lose: bool = False) -> None:
        if may_lose:
            self.give_up_what_was_torn()
        self.log = self.opened()
        assert may_lose or self.log.leader_epoch > self.epoch
        self.epoch = self.log.leader_epoch
        if may_lose:
            assert self.log.next_offset >= self.dumb.flushed_end
            if self.dumb.start == self.log.next_offset:  # what was deleted already may be lost as well
                self.dumb.sequence_offsets = self.dumb.sequence_offsets[: self.known_sequences()]
            self.forget_from(self.log.next_offset)
        assert self.log.log_start_offset == self.dumb.start

    def give_up_what_was_torn(self) -> None:
        """Somebody was told that a flush had come to its end, and appends behind that waited for none: then batches
        behind a hole are left for a person to decide about, who does here as the words say."""
        log = open_log(self.disk, self.config, at(self.ms))
        told = (
            None if log.offline is None else re.search(r"Whole batches follow it .* --cut orders-0:(\d+)`", log.offline)
        )
        if told is not None:
            assert int(told[1]) >= self.dumb.flushed_end, log.offline
            cut_back(self.disk, log.folder, int(told[1]))

    def known_sequences(self) -> int:
        known = self.log.producers.highwater(LEASED)
        return known[1] + 1 if known else 0

    @invariant()
    def the_log_holds_what_the_list_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        log, dumb = self.log, self.dumb
        assert (log.next_offset, log.high_watermark, log.log_start_offset) == (dumb.end, dumb.end, dumb.start)
        found = [(record.offset, record.key or b"", record.value or b"") for record in records_in(log, 300)]
        if dumb.compacted:
            assert set(found) <= set(dumb.visible())
            assert {key: (offset, value) for offset, key, value in found} == dumb.compacted_view()
        else:
            assert found == dumb.visible()
        assert self.known_sequences() == len(dumb.sequence_offsets)


LogMachine.TestCase.settings = settings(
    max_examples=scaled(100),
    stateful_step_count=40,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
test_any_life_of_a_log_ends_as_a_dumb_list_would = LogMachine.TestCase
