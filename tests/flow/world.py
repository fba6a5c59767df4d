"""One cell, several holders, and a broker with the real rules of producers, in seeded interleavings.

Everybody takes turns, and a seed decides whose it is. What may happen: a holder is killed at any step, or sleeps, or
leaves while another one waits for its goodbye; an answer is lost with its connection, and what was queued behind it
arrives later or never; idle connections are closed; the clock jumps, and brokers forget producers by the timestamps of
their records; journals are compacted, and tombstones go; the epochs of a journal pid run out. A machine keeps an old
copy of the journal, and a holder there begins with it.

What must be true: the outputs of each partition, in their order, are those of a run that nothing disturbed, and so is
the state, at each restore.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.flow.cluster import ASKED, IDLE_MS, OUTPUTS, TOLD, Breach, Cluster, Folded, Rules
from tests.flow.process import Process

MOST_HOLDERS: Final = 3
MOST_TURNS: Final = 60_000
PATIENCE_MS: Final = (0, 0, 0, 20, 100)  # with the goodbye of the one before


class World(Cluster):
    def __init__(self, seed: int, rules: Rules) -> None:
        super().__init__(Random(seed), rules)
        self.holders: list[Process] = []

    def forget_connections(self) -> None:
        self.ghosts.clear()
        for holder in self.holders:
            for node in holder.conns:
                holder.cut(node, is_ghost=False)

    # --- what happens

    def run(self) -> None:
        for _ in range(self.random.choice((300, 600, 1_200))):
            self.turn()
        self.finish()
        self.check()

    def turn(self) -> None:
        random, chance = self.random, self.random.random()
        alive = [each for each in self.holders if not each.is_over]
        awake = [each for each in alive if each.sleeps <= 0 and not each.is_quiet]
        if not alive or (len(alive) < MOST_HOLDERS and chance < 0.06):
            self.holders.append(Process(self, yields_until_ms=self.now.wall_ms + random.choice(PATIENCE_MS)))
        elif chance < 0.6 and awake:
            random.choice(awake).turn()
        elif chance < 0.9:
            queued = [(each, node) for each in alive for node, conn in each.conns.items() if conn.queue]
            if queued:
                holder, node = random.choice(queued)
                holder.deliver(node, 0.15)
        elif chance < 0.92 and self.ghosts:
            ghost = random.choice(self.ghosts)
            if ghost and random.random() < 0.7:
                self.append(ghost.popleft())
            else:
                self.ghosts.remove(ghost)
        elif chance < 0.945 and awake:
            self.strike(random.choice(awake), chance)
        elif chance < 0.965:
            self.compact()
        elif chance < 0.98:
            self.pass_ms(random.choice((1, 3, 10, 60, 120, 300, 1_200)))
        self.grow(0.02)
        self.now_ms += random.random() < 0.2
        for each in alive:
            each.sleeps -= 1

    def strike(self, holder: Process, chance: float) -> None:
        if chance < 0.926:
            holder.kill()
            self.seen["crashes"] += 1
        elif chance < 0.94:
            holder.sleeps = self.random.choice((5, 20, 100, 300))
            self.seen["sleeps"] += 1
        else:
            holder.cell.leave(self.now)

    def grow(self, chance: float) -> None:
        for index, records in enumerate(self.inputs):
            if self.shown[index] < len(records.offsets) and self.random.random() < chance:
                self.shown[index] += 1

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        if ms >= IDLE_MS and self.rules.closes_idle_connections:
            self.forget_connections()

    def finish(self) -> None:
        """Those that slept go on, a last holder comes to the end, and those that are left have the last word."""
        last = Process(self, is_last=True)
        for each in self.holders:
            each.sleeps = 0
        others = [each for each in self.holders if not each.is_over]
        self.holders = [*others, last]
        for turn in range(MOST_TURNS):
            if last.is_over:
                break
            if turn < 1_500 and others and self.random.random() < 0.1:
                self.last_words([self.random.choice(others)])
            self.last_words([last])
            if self.ghosts and self.random.random() < 0.05:
                for wire in self.ghosts.pop():
                    self.append(wire)
            self.now_ms += turn % 7 == 0
            self.grow(0.2)
        else:
            raise Breach(f"stuck: {last.cell.state.name} {last.cell.why}")
        for _ in range(100):
            self.last_words(others)

    def last_words(self, holders: Sequence["Process"]) -> None:
        for each in holders:
            each.turn()
            for node, conn in each.conns.items():
                if conn.queue:
                    each.deliver(node, 0.0)

    def check(self) -> None:
        if len(self.order) < self.total:
            raise Breach("the plans do not cover the input")
        for place, expected in Folded(self.order).outputs.items():
            found = [each[1] for each in self.logs[place].records()]
            if found != expected:
                raise Breach(f"{place}: {found} instead of {expected}")
        found = [each[1] for each in self.logs[ASKED].records()]
        if found != self.answers:
            raise Breach(f"sent {found} where the commits hold {self.answers}")
        told = [each[1] for each in self.logs[TOLD].records()]
        if told != self.told:
            raise Breach(f"told {told} where {self.told} follows from the commits")
        expected = Folded(self.order).outputs[OUTPUTS[2]] if self.rules.asks else []
        if [value.rpartition(b":")[0] for value in found if value] != expected:
            raise Breach(f"sent {found}, asked about {expected}")
