"""Bounds on the entries of all partitions together, one for each kind of producers. Pure.

A partition takes a place below the ceiling before it makes an entry. Where none is left, some entries give way, in
small steps: some thousand are looked at, and each step goes on with the next partitions, so none takes long. The rule
is a partition's own: what came once and never again gives way first, and never a producer that writes on while others
are idle.

Leases give way by how long they were idle. An *epoch* is the time in which an eighth of the bound comes. Kafka's pids
give way only when nothing of theirs can still arrive, so where all are active new ones are refused.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from oncelog.clock import Now

UNBOUNDED = 1 << 62
EPOCHS = 8  # in which as many come as the ceiling allows
EPOCHS_KEPT = 5  # a producer that wrote on is not taken for idle before
CAME_ONCE, CAME_ONCE_NOW, GOES_ON = 0, EPOCHS_KEPT + 1, EPOCHS_KEPT + 2  # ranks, the others between them
LOOKED_AT = 16_384  # entries at a time
REFUSED_MS = 1_000  # before it is looked again whether somebody may give way
SURE_OF_A_PLACE = 64  # of Kafka's pids a partition can hold this many whatever the others do


class Leases(Protocol):
    """The leased producers of one partition."""

    def __len__(self) -> int: ...

    def epoch_begins(self, end_offset: int) -> None:
        """Entries for offsets below this one were written before."""
        ...

    def ranks(self) -> Sequence[int]:
        """The rank of each place, oldest pid first: who has the least gives way first. CAME_ONCE: wrote one batch, a
        whole epoch ago or more; from 1 on: wrote on, and was idle for 5 whole epochs or more, 4, 3, 2, 1;
        CAME_ONCE_NOW; GOES_ON."""
        ...

    def give_way(self, places: Sequence[int], now: Now) -> None: ...


class KafkaPids(Protocol):
    """The producers of one partition that have pids of InitProducerId."""

    def __len__(self) -> int: ...

    def drop_graced(self, most: int, now: Now) -> int:
        """Drop producers of which nothing can still arrive, the longest idle first; return how many that were."""
        ...


class Counted(Protocol):
    def kinds(self) -> tuple[Leases, KafkaPids]: ...


Partitions = Callable[[], Iterable[tuple[Counted, int]]]  # and where the log of each ends


class LeaseCeiling:
    def __init__(self, most: int) -> None:
        self.partitions: Partitions = tuple
        self._most = most
        self._left = 0  # places that are surely free
        self._came = 0  # in this epoch
        self._hand = 0  # which partition is looked at next
        self._fruitless = 0  # entries looked at since some gave way

    def recount(self) -> None:
        self._left = 0

    def take(self, now: Now) -> None:
        """Room for an entry, before it is made."""
        if self._left <= 0:
            self._look(now)
        self._left -= 1

    def _look(self, now: Now) -> None:
        every = [(partition.kinds()[0], end_offset) for partition, end_offset in self.partitions()]
        epoch = max(1, self._most // EPOCHS)
        if self._came >= epoch:
            self._came = 0
            for leases, end_offset in every:
                leases.epoch_begins(end_offset)
        held = sum(len(leases) for leases, _ in every)
        if held >= self._most:
            held -= self._free([leases for leases, _ in every], held, now)
        self._left = max(1, min(self._most - held, epoch - self._came))
        self._came += self._left

    def _free(self, every: Sequence[Leases], held: int, now: Now) -> int:
        ranked: list[tuple[Leases, Sequence[int]]] = []
        looked_at = 0
        for _ in every:
            leases = every[self._hand % len(every)]
            self._hand += 1
            if len(leases):
                ranked.append((leases, leases.ranks()))
                looked_at += len(leases)
            if looked_at >= LOOKED_AT:
                break
        self._fruitless += looked_at
        # Where everybody goes on, somebody has to lease again.
        ranks_that_may_go = GOES_ON + (self._fruitless >= held)
        going: list[list[int]] = [[] for _ in ranked]
        wanted = max(1, looked_at // EPOCHS)
        freed = 0
        for rank in range(ranks_that_may_go):
            for (_, ranks), places in zip(ranked, going, strict=True):
                if freed < wanted and rank in ranks:
                    found = [place for place, each in enumerate(ranks) if each == rank][: wanted - freed]
                    places += found
                    freed += len(found)
        for (leases, _), places in zip(ranked, going, strict=True):
            if places:
                leases.give_way(places, now)
        if freed:
            self._fruitless = 0
        return freed


class KafkaCeiling:
    def __init__(self, most: int) -> None:
        self.partitions: Partitions = tuple
        self._most = most
        self._left = 0
        self._hand = 0
        self._refuses_until_ms = 0

    def take(self) -> None:
        """An entry is made."""
        self._left -= 1

    def refuses(self, held_here: int, now: Now) -> bool:
        """Whether there is no place for another pid in a partition that has this number."""
        if self._left <= 0 and held_here >= SURE_OF_A_PLACE and now.monotonic_ms >= self._refuses_until_ms:
            self._look(now)
        return self._left <= 0 and held_here >= SURE_OF_A_PLACE

    def _look(self, now: Now) -> None:
        every = [partition.kinds()[1] for partition, _ in self.partitions()]
        held = sum(len(pids) for pids in every)
        if held >= self._most:
            held -= self._free(every, held - self._most + max(1, self._most // EPOCHS), now)
        self._left = self._most - held
        if self._left <= 0:
            self._refuses_until_ms = now.monotonic_ms + REFUSED_MS

    def _free(self, every: Sequence[KafkaPids], wanted: int, now: Now) -> int:
        wanted = min(wanted, LOOKED_AT)
        freed = 0
        for _ in every:
            freed += every[self._hand % len(every)].drop_graced(wanted - freed, now)
            if freed == wanted:
                break
            self._hand += 1
        return freed


class Ceilings:
    """The ceilings that all partitions of a server share."""

    def __init__(self, most_leases: int = UNBOUNDED, most_kafka_pids: int = UNBOUNDED) -> None:
        self.leases = LeaseCeiling(most_leases)
        self.kafka = KafkaCeiling(most_kafka_pids)

    def belong_to(self, partitions: Partitions) -> None:
        """These partitions count from now on, with what they hold already."""
        self.leases.partitions = self.kafka.partitions = partitions
        self.leases.recount()
