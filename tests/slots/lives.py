"""One producer in several lives: killed anywhere, resumed elsewhere from its last save, its requests living on.

`Resuming` decides; the engine's part is here in its simplest form: with leases, resuming fences first; on stock Kafka
the slots are shared with whatever the dead one still has under way. What H covers is skipped. The output must be exact.
"""

from dataclasses import dataclass
from random import Random

from oncelog.slots import NOBODY, HighWater, Identity, Place
from oncelog.slots.chain import opened
from oncelog.slots.messages import Boundary, Found
from oncelog.slots.questions import Ask
from oncelog.slots.resuming import LogRead, Resuming
from oncelog.slots.standing import filled_since
from tests.model.events import WALL_MS
from tests.slots.flavours import Flavour
from tests.slots.history import real_sender
from tests.slots.world import Client, NewSender, World

PLACE = Place("t", 0)


@dataclass(slots=True)
class Saved:
    boundary: Boundary
    position: int  # records that the boundary covers


class Lives:
    def __init__(self, flavour: Flavour, seed: int, new_sender: NewSender = real_sender, records: int = 80) -> None:
        self.flavour = flavour
        self._new_sender = new_sender
        self._rng = Random(seed ^ 0xD1E)
        self.world = World(flavour, seed, new_sender)
        self.world.reports_open = records
        self.log = self.world.cluster.logs[PLACE]
        self.saved: Saved | None = None
        self.records = records
        self.lives = 0
        self._number = 0  # of the life that counts
        self._added = 0
        self._reported = 0
        self._is_ready = False  # its identity is saved, so it may send
        self._client = self.world.clients[0]
        for at_ms in sorted(self._rng.randrange(50, 2_500) for _ in range(self._rng.choice((1, 2, 4)))):
            self.world.after(at_ms, self.kill)
        self._begin()

    def run(self) -> None:
        world = self.world
        step_ms, end_ms = 100, world.now_ms + 120_000
        while world.now_ms < end_ms and not self._is_over():
            world.run_until(world.now_ms + step_ms)
        world.run_until(world.now_ms + self.flavour.linger_ms + 1_000)

    def broken(self) -> list[str]:
        found = self.log.stored.records()
        expected = list(range(self.records))
        return [] if found == expected else [f"the log holds {found}"]

    def _is_over(self) -> bool:
        return self._is_ready and self._added == self.records and self._reported == len(self._client.delivered)

    # Life and death

    def kill(self) -> None:
        dead = self._client
        dead.is_dead = True
        for conn in list(dead.conns.values()):
            conn.cut()
        self._client = Client(self.world, len(self.world.clients), self._new_sender(self.flavour, self._rng.random))
        self.world.clients.append(self._client)
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        self._number += 1
        self._is_ready = False
        self._reported = 0
        number = self._number
        self._client.learn_leaders()
        if self.saved is None:
            self._take_identity(number, 0)
        else:
            generation = (self.saved.boundary.identity.generation + 1) % 32_768
            self.world.after(self._rng.randrange(1, 40), lambda: self._resume(number, generation))

    def _take_identity(self, number: int, position: int) -> None:
        self._added = position
        self._client.sender.pin(PLACE)
        self._client.pump()
        self._wait_for_boundary(number)

    def _wait_for_boundary(self, number: int) -> None:
        if number != self._number:
            return
        if self.save():
            self._go_on(number)
        else:
            self.world.after(5, lambda: self._wait_for_boundary(number))

    def _resume(self, number: int, fence_with: int) -> None:
        """Fences and asks for H in one step, or asks alone; again until the answer is safe."""
        if number != self._number:
            return
        saved, world = self.saved, self.world
        assert saved is not None
        identity = saved.boundary.identity
        found = self.log.look_up(identity, saved.boundary.next_offset, self.flavour.is_leased, fence_with, world.now)
        if found is None or self._rng.random() < 0.2:
            world.after(20, lambda: self._resume(number, (fence_with + 1) % 32_768))
            return
        self._confirm(number, identity, found)

    def _confirm(self, number: int, identity: Identity, found: Found) -> None:
        if number != self._number:
            return
        world, log = self.world, self.log
        if found.generation != identity.generation:
            known = log.stored.highwater(identity.pid, world.now)
            if known is None or known[0] != found.generation:
                self._resume(number, (found.generation + 1) % 32_768)
                return
            if log.high_watermark < log.stored.end_offset:
                world.after(5, lambda: self._confirm(number, identity, found))
                return
        self._go_on_from(number, found)

    def _go_on_from(self, number: int, found: Found) -> None:
        saved, world = self.saved, self.world
        assert saved is not None
        resuming = Resuming(PLACE, opened(*saved.boundary), WALL_MS + world.now_ms, is_leased=self.flavour.is_leased)
        is_fenced = found.generation != saved.boundary.identity.generation
        resuming.answered(HighWater(found.generation, found.last_sequence) if is_fenced else None)
        if isinstance(resuming.asks, Ask):
            due = saved.boundary.next_sequence
            filled = filled_since(found.last_sequence, due) if found.last_sequence >= 0 else 0
            resuming.answered(LogRead(filled or 0, self.log.high_watermark))
        partition = resuming.resumed(NOBODY)
        self._added = saved.position + partition.records_to_drop
        identity, next_sequence, _ = partition.last
        if identity == NOBODY:  # another lease, that is
            self._take_identity(number, self._added)
            return
        if self.flavour.is_leased:
            self._client.expiry[identity[:2]] = identity.expires_at_ms - WALL_MS
        self._client.sender.resume(
            PLACE,
            identity,
            next_sequence,
            world.now_ms,
            next_offset=partition.next_offset,
            is_leased=self.flavour.is_leased,
            is_shared=not self.flavour.is_leased,
        )
        self._client.sender.pin(PLACE)
        self._client.pump()
        self.save()
        self._go_on(number)

    # Work

    def save(self) -> bool:
        boundary = self._client.sender.boundary(PLACE)
        if boundary is not None:
            self.saved = Saved(boundary, self._added)
        return boundary is not None

    def _go_on(self, number: int) -> None:
        self._is_ready = True
        self._add(number)

    def _add(self, number: int) -> None:
        if number != self._number:
            return
        if self._client.failed:  # a supervisor starts it again
            self.kill()
            return
        if self._rng.random() < 0.3:
            self.save()
        if self._added < self.records:
            end = min(self._added + self._rng.randrange(1, 4), self.records)
            records = tuple(range(self._added, end))
            self._added = end
            self._reported += 1
            self._client.add(PLACE, records)
        self.world.after(self._rng.choice((1, 3, 40)), lambda: self._add(number))
