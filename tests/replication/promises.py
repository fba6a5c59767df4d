"""What must hold in every history, whatever fails: told of what brokers show and answer, it raises `Violation`."""

from bisect import bisect_left
from typing import NamedTuple

from oncelog.log.partition import PartitionLog
from oncelog.producers.sequences import is_newer_generation
from oncelog.records.header import headers, read_header


class Violation(AssertionError):
    pass


class Stood(NamedTuple):
    """A batch as it stands in a log."""

    offset: int
    pid: int
    generation: int
    sequence: int
    records: int
    is_control: bool
    epoch: int


def stood_in(log: PartitionLog, offset: int, limit: int) -> list[Stood]:
    found = []
    while offset < limit:
        data = log.read(offset, 1 << 20, limit_offset=limit)
        if not data:
            break
        for at, header in headers(data):
            header = read_header(data, at)
            offset = header.last_offset + 1
            found.append(
                Stood(
                    header.base_offset,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_offset_delta + 1,
                    header.is_control,
                    header.leader_epoch,
                )
            )
    return found


class Promises:
    def __init__(self) -> None:
        self.safe: list[Stood] = []  # what was below any leader's high watermark
        self.end = 0
        self._owed: dict[int, int] = {}  # by epoch: how much of that its leader must have
        self._slots: dict[int, tuple[int, int]] = {}  # by pid: its generation, and the sequence that comes next
        self._granted: set[int] = set()
        self._gave_way: set[int] = set()

    def granted(self, pid: int) -> None:
        if pid in self._granted:
            raise Violation(f"pid {pid} was granted twice")
        self._granted.add(pid)

    def elected(self, epoch: int) -> None:
        self._owed.setdefault(epoch, len(self.safe))

    def happened(self) -> None:
        """A fault, or its end: who could not lead may be able to."""
        self._gave_way.clear()

    def gives_way(self, broker: int) -> None:
        """To another one, as its disk is full."""
        if broker in self._gave_way:
            raise Violation(f"broker {broker} gives way again, and nothing has happened since it did")
        self._gave_way.add(broker)

    def leads(self, broker: int, log: PartitionLog) -> None:
        # It may learn late that it was elected, and another one may lead by then.
        start = log.log_start_offset
        owed = [each for each in self.safe[: self._owed[log.leader_epoch]] if each.offset >= start]
        found = [each for each in stood_in(log, start, log.next_offset) if each.offset >= start][: len(owed)]
        if found != owed:
            missing = [each for each in owed if each not in found]
            raise Violation(f"broker {broker} leads without {missing[:3]}")

    def shown(self, log: PartitionLog) -> bool:
        """By a leader, to readers. Whether that is more than before."""
        if log.high_watermark <= self.end:
            return False
        for stood in stood_in(log, self.end, log.high_watermark):
            self._take(stood)
        self.end = log.high_watermark
        return True

    def _take(self, stood: Stood) -> None:
        generation, following = self._slots.get(stood.pid, (stood.generation, 0))
        if stood.is_control:
            is_next = stood.pid not in self._slots or is_newer_generation(generation, stood.generation)
        else:
            is_next = (stood.generation, stood.sequence) == (generation, following)
            following += stood.records
        if not is_next:
            raise Violation(f"{stood} stands where generation {generation}, sequence {following} comes next")
        self._slots[stood.pid] = stood.generation, following
        self.safe.append(stood)

    def read(self, found: list[Stood]) -> None:
        """By a consumer: what stands there, whoever leads and whenever."""
        at = bisect_left(self.safe, found[0].offset, key=lambda each: each.offset)
        if self.safe[at : at + len(found)] != found:
            raise Violation(f"{found[:3]} were read where {self.safe[at : at + 3]} stand")

    def acknowledged(self, pid: int, sequence: int, count: int, offset: int) -> None:
        found = [each for each in self.safe if (each.pid, each.sequence, each.is_control) == (pid, sequence, False)]
        is_there = len(found) == 1 and found[0].records == count and (offset < 0 or found[0].offset == offset)
        if not is_there:
            raise Violation(f"sequence {sequence} of pid {pid} was acknowledged at {offset}, there is {found}")

    def fenced(self, pid: int, generation: int) -> None:
        if not any((each.pid, each.generation, each.is_control) == (pid, generation, True) for each in self.safe):
            raise Violation(f"the fence {generation} of pid {pid} was answered, and is not safe")
