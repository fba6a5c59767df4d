"""The consecutive batches of one producer, which is what a partition sees nearly always.

The rules call a batch with the next sequence of the current generation APPEND (see `next_row` of the two kinds). While
one producer goes on and nobody else is asked about, that takes one comparison here, and its entry learns of all the
batches at once. Everything that looks at the map or changes it has the run pass them on first (`ProducerMap`), so that
nothing else can see that the entry lags behind.
"""

from typing import Protocol

from oncelog.clock import Now
from oncelog.producers.entries import Appended, Entries

NOBODY = 0  # no producer's pid


class Kind(Protocol):
    """Leased or Kafka producers, as a run sees them."""

    entries: Entries

    def wrote(self, pid: int, row: int, now: Now) -> None: ...


class Run:
    """The run of a producer: its next sequence, and the batches that are not yet in the entry.

    `ProducerMap.accept_next` compares and appends, and so does the log's `stage`: a call costs as much as all that it
    does. The same object for as long as the map is there, for every producer's run.
    """

    __slots__ = ("_kind", "_row", "batches", "generation", "next_sequence", "pid")

    def __init__(self, kind: Kind) -> None:
        self.pid = NOBODY
        self.generation = 0
        self.next_sequence = 0
        self.batches: list[Appended] = []
        self._kind = kind
        self._row = -1

    def begin(self, kind: Kind, row: int, pid: int, generation: int) -> None:
        """Begin a run. The producer's entry is there already, or nothing could be next."""
        self._kind, self._row = kind, row
        self.pid, self.generation = pid, generation

    def goes_on(self, pid: int, generation: int, first_sequence: int) -> bool:
        """Whether a batch is the one that comes next."""
        return first_sequence == self.next_sequence and pid == self.pid and generation == self.generation

    def pass_on(self) -> None:
        """The entry learns of the batches; the run goes on."""
        batches = self.batches
        if batches:
            self.batches = []
            kind = self._kind
            kind.entries.remember_all(self._row, batches)
            kind.wrote(self.pid, self._row, batches[-1][4])

    def end(self) -> None:
        """The run ends before the map is changed in any other way: the row may become somebody else's."""
        self.pass_on()
        self.pid = NOBODY

    def drop(self) -> None:
        """Everything is forgotten, the batches too."""
        self.batches = []
        self.pid = NOBODY
