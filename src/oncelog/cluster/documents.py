"""The documents in the tree, as JSON that a person can read: one for each topic, and one for each broker."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.cluster.tree import ABSENT, Node, Put, Remove
from oncelog.replication.leadership import Leadership
from oncelog.server.metadata_log import Definition
from oncelog.server.ports import Member
from oncelog.server.topic import Topic

CONFIG = "/config"
NODES, LIVE, TOPICS, GONE = "/nodes", "/live", "/topics", "/gone"
MOST_GONE = 1_000  # ids of deleted topics: kept for brokers that were away, and against changes that come late
PIDS = "/pids"


class DamagedTree(Exception):
    """A document that none of these brokers wrote."""


class TopicDocument(NamedTuple):
    id: UUID
    configs: Mapping[str, str]
    is_internal: bool
    partitions: tuple[Leadership, ...]

    def definition(self, name: str) -> Definition:
        return Definition(
            name=name, id=self.id, partitions=len(self.partitions), configs=self.configs, is_internal=self.is_internal
        )

    def altered(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> "TopicDocument":
        return self._replace(configs=dict(change(self.configs)))


class Held:
    """A topic as it was last read."""

    __slots__ = ("document", "topic", "version")

    def __init__(self, topic: Topic, document: TopicDocument, version: int) -> None:
        self.topic = topic
        self.document = document
        self.version = version


class NodeDocument(NamedTuple):
    """A broker. The version of its node is the broker's epoch: greater after each start."""

    folder: str  # which data folder it has: a number may be given to another one
    member: Member
    is_stopping: bool = False


def encode_topic(document: TopicDocument) -> bytes:
    return _encode(
        {
            "id": str(document.id),
            "configs": dict(sorted(document.configs.items())),
            "internal": document.is_internal,
            "partitions": [_leadership(each) for each in document.partitions],
        }
    )


def put_topic(held: Held, document: TopicDocument) -> tuple[Put, Remove, Put]:
    """Another document in the place of the one that is held. The first two changes come to nothing, and fail where the
    topic was deleted: one that was made in its name since comes to have the versions that it had."""
    gone = f"{GONE}/{held.topic.id}"
    put = Put(f"{TOPICS}/{held.topic.name}", encode_topic(document), held.version)
    return Put(gone, b"", ABSENT), Remove(gone, 0), put


def remove_topic(name: str, version: int, topic_id: UUID, now_ms: int) -> tuple[Remove, Put]:
    """The topic's removal. That it is gone is kept, so that no change which was meant for it is one of the next topic
    with its name."""
    return Remove(f"{TOPICS}/{name}", version), Put(f"{GONE}/{topic_id}", b"%d" % now_ms, ABSENT)


def forget_gone(gone: Mapping[str, Node]) -> list[Remove]:
    """The removal of what is kept of deleted topics, of those that were deleted first, where there are too many."""
    if len(gone) <= MOST_GONE:
        return []
    oldest = sorted(gone, key=lambda topic_id: int(gone[topic_id].value))[: len(gone) - MOST_GONE // 2]
    return [Remove(f"{GONE}/{each}", gone[each].version) for each in oldest]


def decode_topic(value: bytes) -> TopicDocument:
    found = _decode(value)
    try:
        return TopicDocument(
            UUID(found["id"]),
            found["configs"],
            found["internal"],
            tuple(_leadership_of(each) for each in found["partitions"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedTree(f"a topic's document: {error!r}") from error


def encode_node(document: NodeDocument) -> bytes:
    member = document.member
    endpoints = {name: [host, port] for name, (host, port) in member.endpoints.items()}
    return _encode(
        {"folder": document.folder, "endpoints": endpoints, "rack": member.rack, "stopping": document.is_stopping}
    )


def decode_node(value: bytes) -> NodeDocument:
    found = _decode(value)
    try:
        endpoints = {name: (str(host), int(port)) for name, (host, port) in found["endpoints"].items()}
        return NodeDocument(found["folder"], Member(endpoints, found["rack"]), found["stopping"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedTree(f"a broker's document: {error!r}") from error


def _leadership(state: Leadership) -> dict[str, Any]:
    return {
        "replicas": state.replicas,
        "leader": state.leader,
        "epoch": state.epoch,
        "isr": state.in_sync,
        "elr": state.eligible,
        "last": state.last,
        "v": state.version,
        **({"adding": state.adding, "removing": state.removing} if state.adding or state.removing else {}),
    }


def _leadership_of(found: dict[str, Any]) -> Leadership:
    return Leadership(
        tuple(found["replicas"]),
        found["leader"],
        found["epoch"],
        tuple(found["isr"]),
        tuple(found["elr"]),
        tuple((broker, (epoch, end)) for broker, (epoch, end) in found["last"]),
        found["v"],
        tuple(found.get("adding", ())),
        tuple(found.get("removing", ())),
    )


def _encode(found: dict[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()


def _decode(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise DamagedTree(f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise DamagedTree("no JSON object")
    return found
