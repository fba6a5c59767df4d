"""What a client asks first: metadata, versions, and frames that are none."""

import socket
import struct
import uuid

from tests.peers.questions.asking import or_closed, question
from tests.raw import RawConnection

# --- metadata -------------------------------------------------------------------------------------------------------


@question
def metadata_of_an_unknown_topic(c: RawConnection, topic: str) -> object:
    answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    return [(t.error_code.name, t.name == topic, len(t.partitions)) for t in answer.topics]


@question
def metadata_creates_a_topic(c: RawConnection, topic: str) -> object:
    answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=True)
    first = answer.topics[0].error_code.name in ("none", "unknown_topic_or_partition", "leader_not_available")
    c.await_leaders(topic, [0])
    answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=True)
    return first, [(t.error_code.name, len(t.partitions)) for t in answer.topics]


@question
def metadata_of_an_illegal_name(c: RawConnection, topic: str) -> object:
    names = ["a b", "", ".", "..", "x" * 250, "é"]
    answers = [c.call("metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=True) for name in names]
    return [answer.topics[0].error_code.name for answer in answers]


@question
def metadata_of_a_topic_id(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    known = c.call("metadata", 12, topics=[{"name": topic}]).topics[0].topic_id
    asked = [{"topic_id": known, "name": None}, {"topic_id": uuid.UUID(int=77), "name": None}]
    answer = c.call("metadata", 12, topics=asked)
    return sorted((t.error_code.name, t.name == topic) for t in answer.topics)


@question
def metadata_of_no_topics_and_of_all(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    none = c.call("metadata", 9, topics=[]).topics
    every = c.call("metadata", 9, topics=None).topics
    return len(none), topic in {t.name for t in every}


@question
def partitions_tell_leader_replicas_and_epoch(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=3)
    answer = c.call("metadata", 9, topics=[{"name": topic}])
    here = answer.brokers[0].node_id
    return [
        (
            p.error_code.name,
            p.partition_index,
            p.leader_id == here,
            p.leader_epoch,
            len(p.replica_nodes),
            len(p.isr_nodes),
        )
        for p in sorted(answer.topics[0].partitions, key=lambda p: p.partition_index)
    ]


@question
def describe_topic_partitions_of_known_and_unknown(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    wanted = [{"name": topic}, {"name": topic + "-absent"}]
    answer = c.call("describe_topic_partitions", 0, topics=wanted, response_partition_limit=100)
    return sorted((t.error_code.name, t.name == topic, len(t.partitions)) for t in answer.topics)


@question
def describe_cluster(c: RawConnection, topic: str) -> object:
    answer = c.call("describe_cluster", 0)
    return answer.error_code.name, len(answer.brokers), answer.controller_id == answer.brokers[0].broker_id


# --- versions -------------------------------------------------------------------------------------------------------


@question
def api_versions_in_a_version_of_the_future(c: RawConnection, topic: str) -> object:
    c.send_bytes(struct.pack(">hhih", 18, 99, 5, -1) + b"\x00")
    data = c.receive_bytes()
    correlation_id, error, count = struct.unpack_from(">ihi", data)
    keys = {struct.unpack_from(">h", data, 10 + 6 * i)[0] for i in range(count)}
    return correlation_id, error, 18 in keys


@question
def an_unknown_api_key(c: RawConnection, topic: str) -> object:
    c.send_bytes(struct.pack(">hhih", 9999, 0, 5, -1))
    return or_closed(c.receive_bytes)


@question
def a_version_that_is_not_served(c: RawConnection, topic: str) -> object:
    c.send_bytes(struct.pack(">hhih", 3, 99, 5, -1) + b"\x00")
    return or_closed(c.receive_bytes)


@question
def a_body_that_ends_too_early(c: RawConnection, topic: str) -> object:
    c.send_bytes(struct.pack(">hhih", 3, 1, 5, -1) + struct.pack(">i", 100))
    return or_closed(c.receive_bytes)


@question
def a_frame_of_negative_length(c: RawConnection, topic: str) -> object:
    c.socket.sendall(struct.pack(">i", -5) + b"12345")
    return or_closed(c.receive_bytes)


@question
def a_frame_of_two_gigabytes(c: RawConnection, topic: str) -> object:
    c.socket.sendall(struct.pack(">i", 2**31 - 1))
    return or_closed(c.receive_bytes)


@question
def a_frame_that_stops_half_way(c: RawConnection, topic: str) -> object:
    c.socket.sendall(struct.pack(">i", 100) + b"half")
    c.socket.shutdown(socket.SHUT_WR)
    return or_closed(c.receive_bytes)
