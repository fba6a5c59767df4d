"""How a group is asked: the requests by their short names, and the table of questions."""

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from tests.raw import RawConnection

Question = Callable[[RawConnection, str], object]
QUESTIONS: dict[str, Question] = {}
CONSUMER = "consumer"
SUBSCRIBED = b"\0\0\0\0\0\1\0\4mine\xff\xff\xff\xff"  # version 0, one topic, no user data
SESSION_MS = 30_000


def question(ask: Question) -> Question:
    QUESTIONS[ask.__name__.replace("_", " ")] = ask
    return ask


def error_of(answer: Any) -> str:
    code: ErrorCode = answer.error_code
    return code.name


def join(c: RawConnection, group: str, member: str = "", *, version: int = 5, **more: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": SESSION_MS,
        "protocol_type": CONSUMER,
        "protocols": [{"name": "range", "metadata": SUBSCRIBED}],
    } | more
    if version == 0:
        del values["rebalance_timeout"]
    return c.call("join_group", version, **values)


def member_of(c: RawConnection, group: str, **more: Any) -> tuple[str, int]:
    """A member that joined, alone; not in sync yet."""
    first = join(c, group, **more)
    answer = join(c, group, first.member_id, **more) if error_of(first) == "member_id_required" else first
    return answer.member_id, answer.generation_id


def sync(c: RawConnection, group: str, member: str, generation: int, *, version: int = 3, **more: Any) -> Any:
    mine = [{"member_id": member, "assignment": b"share"}]
    values: dict[str, Any] = {"group_id": group, "member_id": member, "generation_id": generation, "assignments": mine}
    return c.call("sync_group", version, **(values | more))


def stable(c: RawConnection, group: str, **more: Any) -> tuple[str, int]:
    member, generation = member_of(c, group, **more)
    sync(c, group, member, generation, group_instance_id=more.get("group_instance_id"))
    return member, generation


def heartbeat(c: RawConnection, group: str, member: str, generation: int, **more: Any) -> str:
    answer = c.call("heartbeat", 3, group_id=group, member_id=member, generation_id=generation, **more)
    return error_of(answer)


def commit(c: RawConnection, group: str, parts: list[dict[str, Any]], *, version: int = 8, **more: Any) -> object:
    topics = more.pop("topics", None) or [{"name": group, "partitions": parts}]
    values: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    answer = c.call("offset_commit", version, **(values | more))
    return sorted((p.partition_index, error_of(p)) for t in answer.topics for p in t.partitions)


def part(index: int = 0, offset: int = 7, metadata: str | None = "m") -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}


def shortened(metadata: str) -> str:
    return metadata if len(metadata) < 10 else f"{metadata[:1]} times {len(metadata)}"


def committed(c: RawConnection, group: str, topic: str, partitions: tuple[int, ...] = (0,)) -> object:
    answer = c.call("offset_fetch", 7, group_id=group, topics=[{"name": topic, "partition_indexes": list(partitions)}])
    found = [
        (p.partition_index, p.committed_offset, p.committed_leader_epoch, shortened(p.metadata), error_of(p))
        for t in answer.topics
        for p in t.partitions
    ]
    return error_of(answer), sorted(found)
