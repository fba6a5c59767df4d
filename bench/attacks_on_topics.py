"""Attacks that name what exists: wide topics, much data, offsets, leases. Each is made as those in `attacks.py` are."""

import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench import attacks
from bench.attacks import PATIENCE_S, Row, Said, answers, counted, crowd, frame, said_to
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, Rec, batch

DRIP_S = 0.5
ROWS: list[Row] = []
row = partial(attacks.row, among=ROWS)


def wanted(topic: str, partitions: Iterable[int], **more: Any) -> bytes:
    """A Fetch from the beginning of each partition."""
    asked = [
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 30,
        }
        for index in partitions
    ]
    values: dict[str, Any] = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 30,
        "isolation_level": 0,
    }
    values |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""} | more
    return frame("fetch", 11, topics=[{"topic": topic, "partitions": asked}], **values)


def wide_topic(server: ServerProcess, partitions: int = 4_900) -> None:
    """Each partition holds a record."""
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("wide", partitions)
        for start in range(0, partitions, 500):
            indexes = range(start, min(start + 500, partitions))
            data = [{"index": index, "records": batch([b"x" * 100])} for index in indexes]
            topics = [{"name": "wide", "partition_data": data}]
            connection.call("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=topics)


def of_all_partitions() -> list[bytes]:
    """What reads or changes all partitions of the topic, in the order in which it can be done."""
    every = range(4_900)
    times = [
        [{"partition_index": index, "current_leader_epoch": -1, "timestamp": at} for index in every] for at in (1, -3)
    ]
    epochs = [{"partition": index, "current_leader_epoch": -1, "leader_epoch": 0} for index in every]
    change = {"name": "retention.ms", "value": "1000000", "config_operation": 0}
    resource = {"resource_type": 2, "resource_name": "wide"}
    return [
        wanted("wide", every),
        wanted("wide", range(500)),
        frame("metadata", 9, topics=None),
        *(
            frame("list_offsets", 5, replica_id=-1, isolation_level=0, topics=[{"name": "wide", "partitions": each}])
            for each in times
        ),
        frame("offset_for_leader_epoch", 3, replica_id=-1, topics=[{"topic": "wide", "partitions": epochs}]),
        frame("describe_producers", 0, topics=[{"name": "wide", "partition_indexes": list(every)}]),
        frame("describe_log_dirs", 2, topics=None),
        frame("incremental_alter_configs", 1, resources=[{**resource, "configs": [change]}], validate_only=False),
    ]


@row("all that asks about a topic of 4,900 partitions")
def about_many_partitions(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    frames = of_all_partitions()
    yield
    return counted(said_to(server.port, frames * 2))


@row("DeleteRecords of 4,900 partitions")
def wide_deletion_of_records(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    partitions = [{"partition_index": index, "offset": -1} for index in range(4_900)]
    each = frame("delete_records", 2, topics=[{"name": "wide", "partitions": partitions}], timeout=60_000)
    yield
    return counted(said_to(server.port, [each]))


@row("DeleteRecords that names one partition 19,000 times, each time with another offset")
def many_deletions(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("attacked")
        for _ in range(20):
            connection.produce("attacked", 0, batch([b"x"] * 1_000))
    partitions = [{"partition_index": 0, "offset": offset} for offset in range(1, 19_001)]
    each = frame("delete_records", 2, topics=[{"name": "attacked", "partitions": partitions}], timeout=60_000)
    yield
    return counted(said_to(server.port, [each]))


@row("a Produce request for 4,900 partitions, with each codec")
def wide_produce(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    frames = []
    for codec in range(5):
        data = [{"index": index, "records": batch([b"x" * 50] * 3, codec=codec)} for index in range(4_900)]
        topics = [{"name": "wide", "partition_data": data}]
        frames.append(frame("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=topics))
    yield
    return counted(said_to(server.port, frames * 2))


@row("a Produce request for 9,900 partitions of a topic of 4,900")
def full_produce(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    one = batch([b"x"])
    data = [{"index": number % 4_900, "records": one} for number in range(9_900)]
    topics = [{"name": "wide", "partition_data": data}]
    each = frame("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=topics)
    yield
    return counted(said_to(server.port, [each] * 3))


@row("OffsetCommit of 9,800 partitions by three groups, twice each, and the groups are deleted")
def wide_commits(server: ServerProcess) -> Generator[None, None, Said]:
    names, groups = ("wide", "wider"), ("one", "two", "three")
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        for name in names:
            connection.create_topic(name, 4_900)
    places = [{"partition_index": each, "committed_offset": 1, "committed_metadata": ""} for each in range(4_900)]
    values: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""}
    topics = [{"name": name, "partitions": places} for name in names]
    frames = [frame("offset_commit", 8, group_id=each, topics=topics, **values) for each in groups]
    yield
    return counted(said_to(server.port, [*frames * 2, frame("delete_groups", 2, groups_names=list(groups))]))


@row("a setting of the server that changes for 3,000 topics, and what asks about all of them")
def settings_of_all(server: ServerProcess) -> Generator[None, None, Said]:
    configs = [{"name": "retention.ms", "value": "100000"}]
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        for start in range(0, 3_000, 1_000):
            one = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
            topics = [{"name": f"topic-{number}", **one} for number in range(start, start + 1_000)]
            connection.call("create_topics", 5, topics=topics, timeout=60_000, validate_only=False)
    again = [{"name": f"another-{number}", **one} for number in range(3_000)]
    replicas = ",".join(f"{number}:0" for number in range(4_000))
    listed = {"name": "follower.replication.throttled.replicas", "config_operation": 2, "value": replicas}
    frames = [
        *(
            frame("incremental_alter_configs", 1, resources=[{**resource, "configs": [config]}], validate_only=False)
            for resource, config in (
                (
                    {"resource_type": 4, "resource_name": ""},
                    {"name": "log.retention.ms", "config_operation": 0, "value": "123456"},
                ),
                ({"resource_type": 2, "resource_name": "topic-0"}, listed),
                ({"resource_type": 2, "resource_name": "topic-0"}, listed),
            )
        ),
        frame("create_topics", 5, topics=again, timeout=60_000, validate_only=True),
        frame("metadata", 9, topics=None),
        frame("describe_log_dirs", 2, topics=None),
        frame("describe_topic_partitions", 0, topics=[], response_partition_limit=2_000, cursor=None),
    ]
    yield
    return counted(said_to(server.port, frames * 2))


@row("200 long polls of a topic of 4,900 partitions")
def wide_polls(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    poll = wanted("wide", range(4_900), max_wait=20_000, min_bytes=1 << 30)
    yield
    return crowd(server.port, 200, poll)


@row("300 clients that ask for 100 MB five times and take nothing")
def slow_readers(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("attacked")
        for _ in range(100):
            connection.produce("attacked", 0, batch([bytes(1_000_000)]))
    each = wanted("attacked", [0]) * 5
    yield
    return crowd(server.port, 300, each)


@row("40 clients that each ask for 50,000 offsets")
def offsets_of_all(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server, 1_000)
    partitions = [{"partition_index": each, "committed_offset": 1, "committed_metadata": ""} for each in range(1_000)]
    topics = [{"name": "wide", "partitions": partitions}]
    names = [f"group-{number}" for number in range(50)]
    values: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    said_to(server.port, [frame("offset_commit", 8, group_id=name, **values) for name in names])
    groups = [{"group_id": name, "topics": None} for name in names]
    each = frame("offset_fetch", 8, groups=groups, require_stable=False)
    yield
    return crowd(server.port, 40, each)


@row("requests of 90 MB: 90 batches of a megabyte")
def large_requests(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port) as connection:
        connection.create_topic("attacked", 90)
    one = batch([bytes(1_000_000)])
    data = [{"name": "attacked", "partition_data": [{"index": index, "records": one} for index in range(90)]}]
    each = frame("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=data)
    yield
    return counted(said_to(server.port, [each] * 5))


@row("2,000 frames that end before their last bytes, then a byte each half second")
def half_open(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port) as connection:
        connection.create_topic("attacked")
    data = [{"name": "attacked", "partition_data": [{"index": 0, "records": batch([bytes(60_000)])}]}]
    each = frame("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=data)
    yield
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(server.port)) for _ in range(2_000)]
        for connection in connections:
            connection.socket.sendall(each[:-20])
        for at in range(len(each) - 20, len(each) - 10):
            for connection in connections:
                connection.socket.sendall(each[at : at + 1])
            time.sleep(DRIP_S)
    return "none is answered"


@row("ListOffsets by time: a batch of 75,000 records; 200,000 batches of which the latest is deleted")
def offsets_by_time(server: ServerProcess) -> Generator[None, None, Said]:
    now_ms = time.time_ns() // 1_000_000
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("attacked", 2)
        many = [Rec(b"", timestamp_delta_ms=number) for number in range(75_000)]
        connection.produce("attacked", 0, batch(many, timestamp_ms=now_ms - 80_000))
        connection.produce("attacked", 1, batch([b"x"], timestamp_ms=now_ms + 1_000_000))
        small = batch([b"x"])
        for _ in range(100):
            with connection.in_one_piece():
                for _ in range(2_000):
                    connection.ask_produce("attacked", 1, small)
            for _ in range(2_000):
                connection.produce_answer()
        places = [{"partition_index": 1, "offset": -1}]
        connection.call("delete_records", 2, topics=[{"name": "attacked", "partitions": places}], timeout=1000)
    asked = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": at}
        for index, at in ((0, now_ms - 5_001), (1, now_ms + 500_000))
    ]
    each = frame(
        "list_offsets", 5, replica_id=-1, isolation_level=0, topics=[{"name": "attacked", "partitions": asked}]
    )
    yield
    return counted(said_to(server.port, [each] * 20))


@row("20,000 records to a topic with segment.bytes=14")
def tiny_segments(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port) as connection:
        connection.create_topic("attacked", configs={"segment.bytes": "14"})
    data = [{"name": "attacked", "partition_data": [{"index": 0, "records": batch([b"x"])}]}]
    each = frame("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=data)
    yield
    return counted(said_to(server.port, [each * 2_000] * 10))


@row("a leased producer's batches of 75,000 records, all but the last of them there already")
def overlaps(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("attacked")
        lease = connection.call("lease_pid", 0, topics=[{"name": "attacked", "partitions": [0]}])
        own = lease.topics[0].partitions[0]
        batches = [
            batch([b""] * 75_000, pid=own.producer_id, epoch=own.generation, sequence=number) for number in range(4)
        ]
        connection.produce("attacked", 0, batches[0])
        yield
        codes = Counter(connection.produce("attacked", 0, each).error_code.name for each in batches[1:])
    return counted(codes)


@row("a leased pid is resumed in 4,900 partitions, three times")
def wide_resumes(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        lease = connection.call("lease_pid", 0, topics=[{"name": "wide", "partitions": [0]}])
    own = lease.topics[0].partitions[0]
    topics = [{"name": "wide", "partitions": list(range(4_900))}]
    frames = []
    for later in (1, 2, 3):
        resumed = {"producer_id": own.producer_id, "generation": (own.generation + later) % 2**15, "topics": topics}
        frames.append(frame("resume_pid", 0, timeout=60_000, producers=[resumed]))
    yield
    return counted(said_to(server.port, frames))


@row("65,000 leased pids of a partition, 2,000 of them each older than the one before, and who asks about all")
def many_leases(server: ServerProcess) -> Generator[None, None, Said]:
    asked = frame("lease_pid", 0, topics=[{"name": "attacked", "partitions": [0]}])
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("attacked")
        owns = []
        for _ in range(65):
            connection.socket.sendall(asked * 1_000)
            owns += [each.topics[0].partitions[0] for each in answers("lease_pid", 0, [connection] * 1_000)]
        frames = []
        for own in (owns[0], *owns[2_001:], *reversed(owns[1:2_001])):
            one = batch([b""], pid=own.producer_id, epoch=own.generation, sequence=0)
            data = [{"name": "attacked", "partition_data": [{"index": 0, "records": one}]}]
            frames.append(frame("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=data))
    about = [
        frame("describe_producers", 0, topics=[{"name": "attacked", "partition_indexes": [0]}]),
        frame("describe_leases", 0, topics=[{"name": "attacked", "partitions": [0]}]),
    ]
    yield
    said = said_to(server.port, frames, at_once=500)
    return counted(said + said_to(server.port, about))
