"""The transactions of one partition: which are open, and which of those that ended may not be read as ended yet.

As all that is known of producers they follow from the log: a transactional batch opens its producer's transaction, a
marker ends it. They outlive the entries of their producers, since readers wait for their end.
"""

from collections import deque
from typing import NamedTuple

from oncelog.producers.markers import NO_COORDINATOR

# pid and first offset of each that is open; pid and coordinator's epoch of each
Kept = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]

MOST_VERIFIED = 10_000


class Ended(NamedTuple):
    """A transaction that has ended, whose marker may lie above the high watermark."""

    first_offset: int
    marker_offset: int


class Transactions:
    __slots__ = ("_asked", "_ended", "_questions", "coordinators", "open", "verified")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}  # pid: the first offset. In the order of these, as batches are
        self.coordinators: dict[int, int] = {}  # pid: the epoch of the coordinator that ended its last one
        # By their markers, and by their first offsets, too: one that ends behind another and began before hides that.
        self._ended: deque[Ended] = deque()
        # pid: the epoch in which its coordinator knows that it writes here. Until it does so, or its transaction ends.
        self.verified: dict[int, int] = {}
        # pid: the question to its coordinator that an answer must belong to. Until its transaction ends, too: an answer
        # from before that says nothing of what comes after it.
        self._asked: dict[int, int] = {}
        self._questions = 0

    def __bool__(self) -> bool:
        return bool(self.open or self.coordinators)

    def began(self, pid: int, offset: int) -> None:
        """A transactional batch was appended there. Only the first one of a transaction begins it."""
        self.open.setdefault(pid, offset)
        if self.verified:
            self.verified.pop(pid, None)

    def ask(self, pid: int) -> int:
        """The question to the producer's coordinator that is about to be asked, or is under way already."""
        question = self._asked.pop(pid, None)
        if question is None:
            while len(self._asked) >= MOST_VERIFIED:
                self._asked.pop(next(iter(self._asked)))
            self._questions += 1
            question = self._questions
        self._asked[pid] = question  # behind all others: those whose answers may still come go last
        return question

    def is_asked(self, pid: int, question: int) -> bool:
        """Whether the transaction that the coordinator speaks of has not ended here meanwhile. What is appended behind
        its marker, none would ever end."""
        return self._asked.get(pid) == question

    def verify(self, pid: int, epoch: int) -> None:
        while len(self.verified) >= MOST_VERIFIED:
            self.verified.pop(next(iter(self.verified)))  # it is asked for again
        self.verified[pid] = epoch

    def forget_answers(self, pid: int) -> None:
        """A marker was appended."""
        self.verified.pop(pid, None)
        self._asked.pop(pid, None)

    def ended(self, pid: int, coordinator_epoch: int, marker_offset: int) -> None:
        self.forget_answers(pid)
        first_offset = self.open.pop(pid, None)
        self.coordinators[pid] = max(coordinator_epoch, self.coordinator_epoch(pid))
        if first_offset is not None:
            while self._ended and self._ended[-1].first_offset > first_offset:
                self._ended.pop()
            self._ended.append(Ended(first_offset, marker_offset))

    def coordinator_epoch(self, pid: int) -> int:
        return self.coordinators.get(pid, NO_COORDINATOR)

    def first_offset(self, pid: int) -> int | None:
        """The first offset of its open transaction."""
        return self.open.get(pid)

    def forget_producer(self, pid: int) -> None:
        """Forget the coordinator of a producer; what it has open stays."""
        self.coordinators.pop(pid, None)

    def stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """The offset below which every transaction has ended, and its end cannot be lost any more."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()
        stable = high_watermark
        if self.open:
            stable = min(stable, next(iter(self.open.values())))
        if ended:
            stable = min(stable, ended[0].first_offset)
        return max(stable, min(log_start_offset, high_watermark))

    def first_open_offset(self) -> int | None:
        return next(iter(self.open.values()), None)

    def kept(self) -> Kept:
        """The transactions that a snapshot holds. A reader may see all others as ended."""
        return tuple(self.open.items()), tuple(self.coordinators.items())

    def put_back(self, kept: Kept) -> None:
        self.clear()
        self.open.update(kept[0])
        self.coordinators.update(kept[1])

    def clear(self) -> None:
        self.open.clear()
        self.coordinators.clear()
        self.verified.clear()
        self._asked.clear()
        self._ended.clear()
