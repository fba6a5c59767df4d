"""Attacks by members of groups: many of KIP-848, those that read much, those that say something else each time, and
leaders of classic ones that share out much.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench import attacks
from bench.attacks import PATIENCE_S, SUBSCRIPTION, Row, Said, answers, counted, frame, join
from bench.attacks_on_topics import wide_topic
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

AT_ONCE = 20
ROWS: list[Row] = []
row = partial(attacks.row, among=ROWS)


def beat(member: str, epoch: int = 0, topics: Sequence[str] | None = None, **more: Any) -> bytes:
    own: dict[str, Any] = {"group_id": "many", "member_id": member, "member_epoch": epoch, "rebalance_timeout": 60_000}
    own |= {"instance_id": None, "rack_id": None, "server_assignor": None, "subscribed_topic_regex": None}
    own |= {"subscribed_topic_names": topics, "topic_partitions": [] if epoch == 0 else None}
    return frame("consumer_group_heartbeat", 1, **own | more)


def heard(connection: RawConnection, beats: Iterable[bytes]) -> list[Any]:
    found: list[Any] = []
    asked = 0
    for each in beats:
        connection.socket.sendall(each)
        asked += 1
        if asked == AT_ONCE:
            found += answers("consumer_group_heartbeat", 1, [connection] * asked)
            asked = 0
    return found + answers("consumer_group_heartbeat", 1, [connection] * asked)


def codes(said: Iterable[Any]) -> Counter[str]:
    return Counter(each.error_code.name for each in said)


@row("300 members of a group of KIP-848 that read 1,000 topics, each but one of them: they join, share and leave")
def wide_subscriptions(server: ServerProcess) -> Generator[None, None, Said]:
    names = [f"topic-{number}" for number in range(1_000)]
    one = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        for start in range(0, len(names), 500):
            topics = [{"name": name, **one} for name in names[start : start + 500]]
            connection.call("create_topics", 5, topics=topics, timeout=60_000, validate_only=False)
    joins = [beat(f"m{number}", topics=names[number == 0 :]) for number in range(300)]
    yield
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        said = heard(connection, joins)
        again = heard(connection, (beat(each.member_id, each.member_epoch) for each in said))
        left = heard(connection, (beat(each.member_id, -1) for each in said))
    return counted(codes((*said, *again, *left)))


@row("100 members of a group of KIP-848 that read 19,000 names each, and others the next time")
def many_names(server: ServerProcess) -> Generator[None, None, Said]:
    names = [[f"{member}-{number}" for number in range(19_000)] for member in range(101)]
    joins = [beat(f"m{number}", topics=each) for number, each in enumerate(names[1:])]
    yield
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        said = heard(connection, joins)
        beats = (beat(f"m{number}", max(each.member_epoch, 1), names[number]) for number, each in enumerate(said))
        again = heard(connection, beats)
    return counted(codes((*said, *again)))


@row("4,900 members of a group of KIP-848 that read 4,900 partitions: they join, say what they have, and leave")
def many_of_kip_848(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    joins = [beat(f"m{number}", topics=["wide"]) for number in range(4_900)]
    yield
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        said = heard(connection, joins)
        again = heard(connection, (beat(each.member_id, each.member_epoch, topic_partitions=[]) for each in said))
        left = heard(connection, (beat(each.member_id, -1) for each in said[:2_000]))
    return counted(codes((*said, *again, *left)))


@row("400 groups whose leaders share out 1 MB each, twice")
def large_shares(server: ServerProcess) -> Generator[None, None, Said]:
    names = [f"group-{number}" for number in range(400)]
    said: Counter[str] = Counter()
    yield
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(server.port, timeout_s=PATIENCE_S)) for _ in names]
        members = [""] * len(names)
        for share in (b"x" * 1_000_000, b"y" * 1_000_000):
            for each, name, member in zip(connections, names, members, strict=True):
                each.socket.sendall(join(name, [("range", SUBSCRIPTION)], member))
            joined = answers("join_group", 3, connections)
            members = [each.member_id for each in joined]
            said += codes(joined)
            for each, name, one in zip(connections, names, joined, strict=True):
                own = {"group_id": name, "generation_id": one.generation_id, "member_id": one.member_id}
                shares = [{"member_id": one.member_id, "assignment": share}]
                each.socket.sendall(frame("sync_group", 3, **own, assignments=shares))
            said += codes(answers("sync_group", 3, connections))
    return counted(said)
