"""What a peer does against a server, step by step, and how that is looked at from outside of it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.stock.checks import check_reading
from tests.cluster.stock.doors import TOPIC, Member, Sender
from tests.cluster.writing import PARTITIONS, Writing, check
from tests.peers.committed import committed
from tests.peers.living import living
from tests.peers.server_process import ServerProcess
from tests.peers.stored import stored_codecs, stored_producers
from tests.raw import RawConnection
from tests.waiting import until

AT_ONCE: Final = 300
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}  # members begin at once
COPIED: Final = "copied"
PATIENCE_S: Final = 60


@dataclass(slots=True)
class World:
    """A server of its own, with nothing in it, and what the steps before have left there."""

    server: ServerProcess
    folder: Path
    sent: int = 0
    members: list[Member] = field(default_factory=list)

    @property
    def servers(self) -> str:
        return self.server.bootstrap_servers

    def make_topics(self, *names: str) -> None:
        with RawConnection(self.server.port) as raw:
            for name in names:
                raw.create_topic(name, PARTITIONS)


@dataclass(frozen=True, slots=True)
class Step:
    said: str
    do: Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """`install` brings it into the user's cache, or tells by `MissingPeer` what lacks. Who is not `is_quick` is run
    by the command alone."""

    name: str
    version: Callable[[], str]
    install: Callable[[], object]
    steps: tuple[Step, ...]
    is_quick: bool = True

    @property
    def done(self) -> str:
        return "; ".join(step.said for step in self.steps)

    def run(self, world: World) -> None:
        for step in self.steps:
            try:
                step.do(world)
            except Exception as error:
                error.add_note(f"{self.name}: {step.said}")
                raise


def created(create: Callable[[str, str, int], object]) -> Step:
    def do(world: World) -> None:
        create(world.servers, TOPIC, PARTITIONS)
        with RawConnection(world.server.port) as raw:
            raw.await_leaders(TOPIC, range(PARTITIONS))

    return Step("makes a topic", do)


def sent_and_read(
    sender: Callable[[str, str], Sender],
    member: Callable[[str, str], Member],
    codec: str,
    *,
    is_idempotent: bool = True,
) -> tuple[Step, ...]:
    """Two lives of each: the second member goes on where the first one has committed."""

    def send(world: World) -> None:
        world.make_topics(TOPIC)  # where it does not make topics itself
        with sender(world.servers, codec) as producer:
            writing = Writing(producer, world.sent)
            writing.send(AT_ONCE)
            writing.end()
        world.sent = writing.sent
        check(world.servers, writing)
        codecs = set[str]()
        for partition in range(PARTITIONS):
            codecs |= stored_codecs(world.server, TOPIC, partition)
            assert all(stored_producers(world.server, TOPIC, partition)) or not is_idempotent
        assert codecs - {"none"} == {codec}  # a batch that would grow, some leave as it is

    def read(world: World, new: range) -> None:
        with member(world.servers, "readers") as reading:
            world.members.append(reading)
            until(
                lambda: len(reading.seen) + len(reading.errors) >= len(new),
                "all to be read",
                give_up_seconds=PATIENCE_S,
            )
        assert (reading.errors, sorted(each.number for each in reading.seen)) == ([], list(new))

    def read_in_two_lives(world: World) -> None:
        read(world, range(AT_ONCE))
        send(world)
        read(world, range(AT_ONCE, 2 * AT_ONCE))
        check_reading(world.servers, "readers", world.members)

    how = "idempotently in" if is_idempotent else "in"
    return Step(f"sends {how} {codec}", send), Step("reads in a group, commits and goes on there", read_in_two_lives)


def copied(command: Callable[[str, str, str, str], list[str]]) -> Step:
    """What it has aborted, and what it had not committed when it was killed, is not there."""

    def do(world: World) -> None:
        world.make_topics(COPIED)
        order = command(world.servers, TOPIC, COPIED, "copier")
        found: Counter[int] = Counter()
        with living(*order, log=world.folder / "copier.log") as kill:
            for count, each in enumerate(committed(world.servers, COPIED, PARTITIONS, world.sent)):
                found[int(each.value() or b"")] += 1
                if count == world.sent // 3:
                    kill()
        assert found == Counter(range(world.sent))

    return Step("copies in transactions, killed meanwhile, each record once", do)
