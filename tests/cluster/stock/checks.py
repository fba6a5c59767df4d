"""What members of a group have read, beside what is in the log."""

from collections import Counter
from collections.abc import Sequence

from oncelog.client.admin import Admin, GroupOffsets
from tests.cluster.stock.doors import Member
from tests.cluster.writing import read


def committed(servers: str, group: str) -> dict[int, int]:
    with Admin({"bootstrap.servers": servers}) as admin:
        found = admin.list_consumer_group_offsets([GroupOffsets(group, None)])[group].result()
    return {each.partition: each.offset for each in found.topic_partitions or ()}


def check_reading(servers: str, group: str, members: Sequence[Member]) -> None:
    """Together they have read every record, where it stands, and so it is committed."""
    assert [each.errors for each in members] == [[] for _ in members]
    stands = {
        (partition, offset): number
        for partition, some in read(servers, 0).items()
        for offset, (_, number) in enumerate(some)
    }
    seen = {(each.partition, each.offset): each.number for member in members for each in member.seen}
    assert seen == stands
    ends = Counter(partition for partition, _ in stands)
    assert committed(servers, group) == dict(ends)
