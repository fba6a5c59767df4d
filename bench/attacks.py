"""What one client can do to the others, request by request.

Each attack makes its frames first, waits at its one `yield` until the victim is watched, sends them, and returns what
the server said. The largest that each API takes is among them: `many` fills every array of a request.
"""

import struct
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from oncelog.server.api import apis
from oncelog.wire.bounds import MOST_ELEMENTS
from tests.console.served import Served
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, ServerClosed, batch, message
from tests.raw.entities import encode_request, make, without_none
from tests.waiting import until

SIZE = struct.Struct(">i")
Said = str
Attack = Callable[[ServerProcess], Generator[None, None, Said]]

PATIENCE_S = 120
STAY_S = 10  # how long an attack lasts that ends by itself


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    title: str
    attack: Attack
    is_restarted: bool = False  # what the next start costs is looked at, too
    served: Callable[..., Served] = Served


ROWS: list[Row] = []


def row(
    title: str, *, restart: bool = False, among: list[Row] = ROWS, served: Callable[..., Served] = Served
) -> Callable[[Attack], Attack]:
    def add(attack: Attack) -> Attack:
        among.append(Row(attack.__name__, title, attack, restart, served))
        return attack

    return add


# --- sending ------------------------------------------------------------------------------------------------------


def crowd(port: int, count: int, asked: bytes) -> Said:
    """Many connections ask at once, take nothing, and stay for a while."""
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(port, timeout_s=PATIENCE_S)) for _ in range(count)]
        for connection in connections:
            connection.socket.sendall(asked)
        time.sleep(STAY_S)
    return f"none takes an answer in {STAY_S} seconds"


def frame(name: str, version: int, *, client_id: str | None = "attacker", **values: Any) -> bytes:
    kind = message(name, version)
    data = encode_request(kind, make(kind.request, values), 1, client_id)
    return SIZE.pack(len(data)) + data


def said_to(port: int, frames: Iterable[bytes], *, at_once: int = 1) -> Counter[str]:
    """What became of the frames, each on a connection of its own where the last one was closed."""
    said: Counter[str] = Counter()
    with ExitStack() as stack:
        connection = stack.enter_context(RawConnection(port, timeout_s=PATIENCE_S))
        asked = 0
        for each in frames:
            try:
                connection.socket.sendall(each)
                asked += 1
                if asked == at_once:
                    while asked:
                        connection.receive_bytes()
                        asked -= 1
                        said["answered"] += 1
            except (ServerClosed, BrokenPipeError, ConnectionResetError):
                said["closed"] += 1
                asked = 0
                connection = stack.enter_context(RawConnection(port, timeout_s=PATIENCE_S))
        while asked:
            connection.receive_bytes()
            asked -= 1
            said["answered"] += 1
    return said


def counted(said: Counter[str]) -> Said:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(said.items()))


# --- ids and strings ----------------------------------------------------------------------------------------------


def commit(group: str, *, topic: str = "attacked", member: str = "", metadata: str = "") -> bytes:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
    topics = [{"name": topic, "partitions": [partition]}]
    return frame("offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id=member, topics=topics)


@row("commits of groups with names of 33 KB to 4 MB")
def long_groups(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port) as connection:
        connection.create_topic("attacked")
    frames = [commit(f"{number:04d}" + "g" * (33_000 << number % 7)) for number in range(150)]
    yield
    return counted(said_to(server.port, frames))


@row("heartbeats of a group whose name has 4 MB")
def long_heartbeats(server: ServerProcess) -> Generator[None, None, Said]:
    frames = [
        frame("heartbeat", 4, group_id=f"{number}" + "g" * 4_000_000, generation_id=1, member_id="m")
        for number in range(20)
    ]
    yield
    return counted(said_to(server.port, frames))


@row("joins with a client id of 32 KB, member and instance ids of 1 MB")
def long_members(server: ServerProcess) -> Generator[None, None, Said]:
    protocols = [{"name": "range", "metadata": b"x"}]
    frames = [
        frame(
            "join_group",
            7,
            client_id="c" * 32_000,
            group_id=f"group-{number}",
            session_timeout=6000,
            rebalance_timeout=6000,
            member_id="",
            group_instance_id=f"{number}" + "i" * (0 if number % 2 else 1_000_000),
            protocol_type="consumer",
            protocols=protocols,
        )
        for number in range(60)
    ]
    yield
    said: Counter[str] = Counter()
    with ExitStack() as stack:
        for each in frames:
            connection = stack.enter_context(RawConnection(server.port, timeout_s=PATIENCE_S))
            connection.socket.sendall(each)
            said["sent"] += 1
        time.sleep(2)
    return counted(said)


@row("a produce request with 10 million empty tagged fields in its header")
def many_tags(server: ServerProcess) -> Generator[None, None, Said]:
    count = 10_000_000
    head = struct.pack(">hhih", 0, 9, 1, 0) + varint(count) + b"\x01\x00" * count
    frames = [SIZE.pack(len(head)) + head] * 2
    yield
    return counted(said_to(server.port, frames))


@row("ApiVersions of 4 MB, nearly all tagged fields")
def tagged_api_versions(server: ServerProcess) -> Generator[None, None, Said]:
    count = 2_000_000
    head = struct.pack(">hhih", 18, 3, 1, 0) + varint(count) + b"\x01\x00" * count + b"\x02a\x02b\x00"
    yield
    return counted(said_to(server.port, [SIZE.pack(len(head)) + head] * 4))


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# --- groups -------------------------------------------------------------------------------------------------------


@row("300,000 commits of one group", restart=True)
def many_commits(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port) as connection:
        connection.create_topic("attacked")
    each = commit("one")
    yield
    return counted(said_to(server.port, (each for _ in range(300_000)), at_once=50))


@row("101,000 groups that commit once", restart=True)
def many_groups(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port) as connection:
        connection.create_topic("attacked")
    frames = [commit(f"group-{number}") for number in range(101_000)]
    yield
    said = counted(said_to(server.port, frames, at_once=50))
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        answer = connection.call(
            "offset_commit",
            8,
            group_id="newcomer",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": "attacked", "partitions": [partition]}],
        )
        code = answer.topics[0].partitions[0].error_code
    return f"{said}; a newcomer is told {code.name}"


@row("ListGroups of 45,000 groups, eight times")
def list_many_groups(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port) as connection:
        connection.create_topic("attacked")
    said_to(server.port, [commit(f"group-{number}") for number in range(45_000)], at_once=50)
    yield
    return counted(said_to(server.port, [frame("list_groups", 4)] * 8))


SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
MEMBERS = 9_900  # as many connections as a server takes, but for a few others


def join(group: str, protocols: list[tuple[str, bytes]], member: str = "", *, within_ms: int = 60_000) -> bytes:
    """The client's id, of which the server makes the member's, is so short that a full group can be stored."""
    own: dict[str, Any] = {"group_id": group, "member_id": member, "protocol_type": "consumer"}
    own["protocols"] = [{"name": name, "metadata": metadata} for name, metadata in protocols]
    return frame("join_group", 3, client_id="a", session_timeout=300_000, rebalance_timeout=within_ms, **own)


def answers(name: str, version: int, connections: Iterable[RawConnection]) -> list[Any]:
    kind = message(name, version)
    data = [each.receive_bytes() for each in connections]
    return [kind.read_response(each, kind.read_header(each, 0)[1])[0] for each in data]


def await_members(port: int, group: str, count: int) -> None:
    with RawConnection(port, timeout_s=PATIENCE_S) as connection:

        def are_there() -> bool:
            said = connection.call("describe_groups", 5, groups=[group], include_authorized_operations=False)
            time.sleep(0.5)  # the answer names them all, which is work of its own
            return len(said.groups[0].members) >= count

        until(are_there, f"{count} members of {group}", give_up_seconds=PATIENCE_S)


@row(f"{MEMBERS:,} members of a group: a generation and its shares, another one as one of them leaves, and all hang up")
def many_members(server: ServerProcess) -> Generator[None, None, Said]:
    range_only = [("range", SUBSCRIPTION)]
    first = join("many", range_only)
    yield
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(server.port, timeout_s=PATIENCE_S)) for _ in range(MEMBERS)]
        leaving, *staying = connections
        leaving.socket.sendall(first)
        (alone,) = answers("join_group", 3, [leaving])
        for each in staying:
            each.socket.sendall(first)
        await_members(server.port, "many", MEMBERS)  # they wait for the one that was there before
        leaving.socket.sendall(join("many", range_only, alone.member_id))
        joined = answers("join_group", 3, connections)
        shares = [{"member_id": each.member_id, "assignment": b"x"} for each in joined]
        for each, one in zip(connections, joined, strict=True):
            own = {"group_id": "many", "generation_id": one.generation_id, "member_id": one.member_id}
            each.socket.sendall(frame("sync_group", 3, **own, assignments=shares if one.members else []))
        synced = answers("sync_group", 3, connections)
        leaving.socket.sendall(frame("leave_group", 2, group_id="many", member_id=joined[0].member_id))
        answers("leave_group", 2, [leaving])
        for each, one in zip(staying, joined[1:], strict=True):
            each.socket.sendall(join("many", range_only, one.member_id))
        again = answers("join_group", 3, staying)
    return counted(Counter(each.error_code.name for each in (*joined, *synced, *again)))


@row("joins of 20 members with 200,000 topics each, and of 40 with 10,000 protocols each")
def wide_joins(server: ServerProcess) -> Generator[None, None, Said]:
    topics = struct.pack(">hi", 0, 200_000) + b"".join(b"\0\3%03x" % (number % 4096) for number in range(200_000))
    frames = [join("topics", [("range", topics)], within_ms=6_000)] * 20
    for member in range(40):
        own = [(f"{member}-{number}", b"") for number in range(10_000)]
        frames.append(join("protocols", [*own, ("range", SUBSCRIPTION)]))
    yield
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(server.port, timeout_s=PATIENCE_S)) for _ in frames]
        for each, asked in zip(connections, frames, strict=True):
            each.socket.sendall(asked)
        return counted(Counter(each.error_code.name for each in answers("join_group", 3, connections)))


# --- connections --------------------------------------------------------------------------------------------------


@row(f"{MEMBERS:,} connections that are opened at once, ask once, and end at once; three times")
def opened_at_once(server: ServerProcess) -> Generator[None, None, Said]:
    asked = frame("api_versions", 2)
    yield
    for _ in range(3):
        with ExitStack() as stack:
            connections = [
                stack.enter_context(RawConnection(server.port, timeout_s=PATIENCE_S)) for _ in range(MEMBERS)
            ]
            for each in connections:
                each.socket.sendall(asked)
            said = Counter(each.error_code.name for each in answers("api_versions", 2, connections))
        time.sleep(1)  # they end together, and as many again would be above what the server takes
    return f"{counted(said)} the last time"


@row("2,000 connections with an announced frame of 100 MB")
def announced(server: ServerProcess) -> Generator[None, None, Said]:
    start = SIZE.pack(100_000_000) + struct.pack(">hhih", 0, 9, 1, -1) + b"\x00" * 65_536
    yield
    with ExitStack() as stack:
        for _ in range(2_000):
            connection = stack.enter_context(RawConnection(server.port))
            connection.socket.sendall(start)
        begun = time.perf_counter()
        with RawConnection(server.port, timeout_s=PATIENCE_S) as other:
            other.create_topic("attacked")
            other.produce("attacked", 0, batch([b"x" * 1_000_000]))
        took_s = time.perf_counter() - begun
        time.sleep(3)
    return f"another client's megabyte took {took_s:.2f} s"


@row("2,000 long polls that want a gigabyte, at the topic that the victim writes to")
def long_polls(server: ServerProcess) -> Generator[None, None, Said]:
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    poll = frame(
        "fetch",
        11,
        replica_id=-1,
        max_wait=20_000,
        min_bytes=1 << 30,
        max_bytes=1 << 30,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": "of-the-others", "partitions": [wanted]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    yield
    with ExitStack() as stack:
        for _ in range(2_000):
            stack.enter_context(RawConnection(server.port)).socket.sendall(poll)
        time.sleep(5)
    return "they wait"


# --- every API at its limits ------------------------------------------------------------------------------------


def many(name: str, version: int, count: int) -> dict[str, Any]:
    """A request with `count` elements in its outermost array, one in those within, or all in the innermost one."""
    return _filled(message(name, version).request, count)


def _filled(entity_type: Any, count: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields(entity_type):
        hint = field.type
        if get_origin(hint) in (UnionType, Union):
            hint = without_none(hint)
        if get_origin(hint) is tuple and not any(isinstance(value, list) for value in values.values()):
            inner = get_args(hint)[0]
            if get_origin(inner) in (UnionType, Union):
                inner = without_none(inner)
            if is_dataclass(inner):
                values[field.name] = [{**_filled(inner, 0), **_own(inner, number)} for number in range(count)]
            else:
                values[field.name] = [_plain(inner, number) for number in range(count)]
        elif is_dataclass(hint):
            values[field.name] = _filled(hint, 0)
        elif get_origin(hint) is not tuple:
            values[field.name] = _plain(hint, 0)
    return values


def _own(entity_type: Any, number: int) -> dict[str, Any]:
    """Names that differ, so that none is dropped for standing there twice."""
    found: dict[str, Any] = {}
    for field in fields(entity_type):
        hint = field.type
        if get_origin(hint) in (UnionType, Union):
            hint = without_none(hint)
        if isinstance(hint, type) and issubclass(hint, str | UUID):
            found[field.name] = _plain(hint, number)
    return found


def _plain(hint: Any, number: int) -> Any:
    if issubclass(hint, bool):
        return False
    if issubclass(hint, timedelta):
        return 0
    if issubclass(hint, datetime):
        return datetime.fromtimestamp(0, UTC)
    if issubclass(hint, UUID):
        return UUID(int=number + 1)
    if issubclass(hint, int):
        return number % 100
    if issubclass(hint, float):
        return 0.0
    if issubclass(hint, bytes):
        return b""
    return f"nothing-{number}"


def at_limit(name: str, version: int, count: int) -> Attack:
    def attack(server: ServerProcess) -> Generator[None, None, Said]:
        each = frame(name, version, **many(name, version, count))
        yield
        return f"{counted(said_to(server.port, [each] * 4))}, {len(each):,} bytes each"

    return attack


@row("a produce request that names 9,900 partitions")
def many_produce(server: ServerProcess) -> Generator[None, None, Said]:
    data = [{"index": number, "records": batch([b"x"])} for number in range(9_900)]
    topics = [{"name": "attacked", "partition_data": data}]
    each = frame("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=topics)
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("attacked", 4)
    yield
    return f"{counted(said_to(server.port, [each] * 4))}, {len(each):,} bytes each"


@row("CreateTopics of one topic with 4,900 partitions")
def many_partitions(server: ServerProcess) -> Generator[None, None, Said]:
    topic = {"name": "wide", "num_partitions": 4_900, "replication_factor": 1, "assignments": [], "configs": []}
    each = frame("create_topics", 5, topics=[topic], timeout=60_000, validate_only=False)
    yield
    return counted(said_to(server.port, [each]))


@row("DeleteTopics of one topic with 4,900 partitions")
def one_wide_deletion(server: ServerProcess) -> Generator[None, None, Said]:
    each = frame("delete_topics", 5, topic_names=["wide"], timeout=60_000)
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("wide", 4_900)
    yield
    return counted(said_to(server.port, [each]))


@row("400 connections that each ask for all of 45,000 groups")
def all_groups_at_once(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port) as connection:
        connection.create_topic("attacked")
    said_to(server.port, [commit(f"group-{number}") for number in range(45_000)], at_once=50)
    each = frame("list_groups", 4)
    yield
    return crowd(server.port, 400, each)


def add_apis() -> None:
    for api in apis().values():
        if api.key in (0, 11, 14):
            continue
        version = api.versions[1]
        count = MOST_ELEMENTS - 1
        ROWS.append(
            Row(
                f"many_{api.name}", f"{api.name} v{version} with {count:,} elements", at_limit(api.name, version, count)
            )
        )


add_apis()
