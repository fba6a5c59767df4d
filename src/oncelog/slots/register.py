"""A register: facts that many append to one log; where they exclude each other, the first counts. Pure.

A record is only an attempt. Which of them count is decided by the order of the log, alike for every reader:

- Facts that exclude each other are about one *subject* (whose a sink is, under which identity a lane writes, who is the
  first to send something of a batch, what follows a state). Of these the first counts.
- Facts without a subject (how far somebody got) exclude nothing. All count, in any order.
- A fact of a *term* counts only while that term is open. One that opens a term closes the one before, and every subject
  of the new term is still to be decided.

A writer appends, reads on up to its own record, and compares the nonce of what counts with its own. Where an answer is
lost it appends the same again; of what stands there twice the first counts. No key is ever shared, by two writers or by
two attempts of one: compaction would take the first of several and leave a later one.

A record may be removed once its term and the one after it are closed: a reader finds all that counts in the open term
and in the one before. One that was away for longer meets a fact that closes a term beyond its own. That is a `Gap`, and
everything is to be read anew.

A *plan* is what one kind of register holds: it extends `Register` by what its records say and what they come to. Where
records are kept, a compacted topic or committed offsets, is a keeper's (`client/register/`).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

Subject = tuple[Hashable, ...]

TAIL_RECORDS: Final = 32  # of the log's end, at the first try
TAIL_GROWTH: Final = 8


class Record(NamedTuple):
    """A record as it stands in the log."""

    offset: int
    key: bytes | None
    value: bytes | None  # None: removed


@dataclass(frozen=True, slots=True)
class Fact:
    """The fact in a record."""

    content: Any
    nonce: object = None  # two writers never have the same
    subjects: tuple[Subject, ...] = ()
    term: int | None = None  # None: for as long as the register stands
    opens: int | None = None  # the term that is open from here on


class Gap(Exception):
    """The record that closed the open term is gone: everything read before is out of date."""


class Outcome(Enum):
    """The outcome for a fact that a writer wants to count, or has appended."""

    OPEN = "open"  # nothing is decided, so far
    OWN = "own"
    OTHERS = "others"
    PASSED = "passed"  # its term was closed long ago, and what counted there is not known any more


class Register:
    """The state that the records read so far give. As it is, it has no records of its own: its facts are given to it
    one by one."""

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset  # read up to here
        self.term: int | None = None  # the one that is open; None before there is one
        self.keys: dict[bytes, None] = {}  # of the plan's records that are not removed
        self.lasting: dict[Subject, Fact] = {}  # what counts, of facts without a term
        self.open: dict[Subject, Fact] = {}  # of the open term
        self.closed: dict[Subject, Fact] = {}  # of the term before, as far as it was read

    # --- the plan

    def owns(self, key: bytes) -> bool:
        """Whether it is a key of the plan's. A record with another one is foreign: it is passed over."""
        return False

    def fact_of(self, record: Record) -> Fact | None:
        """The fact in a record of the plan; None for a kind that no question is about. Raises where it is damaged."""
        return None

    def counted(self, fact: Fact, won: Sequence[Subject], offset: int) -> None:
        """Take in a fact that counts, for these of its subjects."""

    def removed(self, key: bytes) -> None:
        """Take in that the record with this key was removed."""

    def belongs(self, fact: Fact) -> bool:
        """Whether it is a fact of this register at all: not of one that had the same place before."""
        return True

    def admits(self, fact: Fact, subject: Subject) -> bool:
        """Whether the first fact about this subject may count, as things stand."""
        return True

    @classmethod
    def start_of(cls, tail: Sequence[Record], back: int = 0) -> int | None:
        """The offset that reading must begin at, by these records of the log's end; None where they do not tell it.
        `back`: how many terms earlier. Where a plan does not say otherwise, the whole log is read."""
        return 0

    def become(self, anew: "Register") -> None:
        """Forget what was read before, and go by this."""
        vars(self).clear()
        vars(self).update(vars(anew))

    # --- what counts

    def read(self, records: Iterable[Record], *, from_offset: int = 0) -> None:
        """Take in what follows. Below `from_offset` only keys are looked at, so that old records can be removed."""
        for record in records:
            if record.offset < self.next_offset:
                continue
            if record.key is not None and self.owns(record.key):
                if record.value is None:
                    self.keys.pop(record.key, None)
                    self.removed(record.key)
                else:
                    self.keys[record.key] = None
                    fact = self.fact_of(record) if record.offset >= from_offset else None
                    if fact is not None:
                        self.take(fact, record.offset)
            self.next_offset = record.offset + 1  # at last: one that cannot be read is met again, not passed over

    def take(self, fact: Fact, offset: int = -1) -> None:
        """The next fact of the log."""
        if not self.belongs(fact):
            return
        if not self._is_due(fact):
            if fact.opens is not None and fact.term is not None and self.term is not None and fact.term > self.term:
                raise Gap
            return
        known = self.lasting if fact.term is None else self.open
        won = [subject for subject in fact.subjects if subject not in known and self.admits(fact, subject)]
        if fact.subjects and not won:
            return
        known.update(dict.fromkeys(won, fact))
        if fact.opens is not None:
            self.term, self.closed, self.open = fact.opens, self.open, {}
        self.counted(fact, won, offset)

    def _is_due(self, fact: Fact) -> bool:
        if self.term is None:
            return fact.term is None or fact.opens is not None  # reading begins here
        return fact.term is None or fact.term == self.term

    def fact(self, subject: Subject, term: int | None = None) -> Fact | None:
        """The fact that counts."""
        if term is None:
            return self.lasting.get(subject)
        if self.term is None or term not in (self.term, self.term - 1):
            return None
        return (self.open if term == self.term else self.closed).get(subject)

    def outcome(self, subject: Subject, nonce: object, term: int | None = None) -> Outcome:
        """The outcome for a fact with this nonce."""
        found = self.fact(subject, term)
        if found is not None:
            return Outcome.OWN if found.nonce == nonce else Outcome.OTHERS
        is_closed = term is not None and self.term is not None and term < self.term
        return Outcome.PASSED if is_closed else Outcome.OPEN


class ReadingBack:
    """Reading a log's end back to the offset that a reader must begin at: more and more of it, until that is known."""

    def __init__(
        self, start_of: Callable[[Sequence[Record], int], int | None], first: int, end: int, back: int = 0
    ) -> None:
        self.records: list[Record] = []  # from `start` on
        self.start = self.end = end
        self._start_of = start_of
        self._first = first
        self._step = TAIL_RECORDS
        self._back = back

    @property
    def wanted(self) -> tuple[int, int] | None:
        """The offsets that are to be read next, from and to before; None where enough was read."""
        start = self._start_of(self.records, self._back)
        since = max(self._first, self.start - self._step if start is None else start)
        return (since, self.start) if since < self.start else None

    @property
    def is_cut(self) -> bool:
        """Whether the log begins behind where a reader must: compaction leaves its beginning, so somebody removed
        what counts. Known once enough was read."""
        return self._first > (self._start_of(self.records, 0) or 0)

    def got(self, records: Iterable[Record]) -> None:
        wanted = self.wanted
        assert wanted is not None, "nothing was asked for"
        self.records = [*records, *self.records]
        self.start = wanted[0]
        self._step *= TAIL_GROWTH


def key_of_attempt(key: bytes, attempt: int) -> bytes:
    """Each attempt to append has keys of its own; the first has them as they are."""
    return key if attempt == 1 else b"%b.%d" % (key, attempt)
