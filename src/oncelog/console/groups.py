"""Groups of consumers: who is in them, and how far behind they are."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from oncelog.console import text
from oncelog.console.errors import not_found
from oncelog.console.limits import MOST_MEMBERS, MOST_ROWS, MOST_SUMMED, exact, in_turns
from oncelog.console.query import Query, page_of
from oncelog.server.broker import Broker
from oncelog.server.groups.consumer.members import Member as ConsumerMember
from oncelog.server.groups.member import Member
from oncelog.server.groups.store import AnyGroup
from oncelog.slots import Place


async def groups_view(broker: Broker, query: Query) -> dict[str, Any]:
    names, about = await page_of(broker.turns, broker.groups.groups, query, may=query.may_see_group)
    left = MOST_SUMMED
    rows = []
    async for name in in_turns(broker.turns, names):
        group = broker.groups.groups.get(name)
        if group is None:
            continue  # gone since
        places = [place for place in _places(broker, name) if query.may_see(place[0])]
        summed = places[:left]
        left -= len(summed)
        lags = [_lag(broker, name, place) async for place in in_turns(broker.turns, summed)]
        lag = sum(each["lag"] for each in lags if each is not None and isinstance(each["lag"], int))
        rows.append(_row(group) | {"partitions": len(places), "summed": len(summed), "lag": lag})
    return {**about, "groups": rows}


async def group_view(broker: Broker, query: Query) -> dict[str, Any]:
    name = query.text("group")
    query.refuse_unless_group(name)
    group = broker.groups.groups.get(name)
    if group is None:
        raise not_found("such group")
    places = [place for place in _places(broker, name) if query.may_see(place[0])]
    start = query.page_start(len(places))
    on_page = places[start : start + MOST_ROWS]
    lags = [_lag(broker, name, place) async for place in in_turns(broker.turns, on_page)]
    each_member: Iterator[Member | ConsumerMember] = iter(group.members)
    members = list(islice(each_member, MOST_MEMBERS))
    return {
        **_row(group),
        "found": len(places),
        "start": start,
        "page": MOST_ROWS,
        "offsets": [each for each in lags if each is not None],
        "member_rows": [
            {
                "member": text.name(each.member_id),
                "instance": text.name(each.instance_id),
                "client": text.name(each.client_id),
                "host": text.name(each.client_host),
                "is_leader": each.member_id == group.leader,
            }
            for each in members
        ],
    }


def _row(group: AnyGroup) -> dict[str, Any]:
    return {
        "group": group.group_id,  # as it is, since the page asks by it; shown it is `name`
        "name": text.name(group.group_id),
        "state": group.state.value,
        "generation": group.generation,
        "protocol": text.name(group.protocol_name),
        "members": len(group.members),
    }


def _places(broker: Broker, group: str) -> list[Place]:
    topics = broker.groups.committed_topics(group)
    return [Place(topic, index) for topic, indexes in sorted(topics.items()) for index in indexes]


def _lag(broker: Broker, group: str, place: Place) -> dict[str, Any] | None:
    committed = broker.groups.committed(group, *place)
    if committed is None:
        return None
    partition = broker.topics.open_partition(*place)
    end = partition.log.high_watermark if partition is not None else None
    return {
        "topic": place.topic,
        "partition": place.partition,
        "committed": exact(committed.offset),
        "end": None if end is None else exact(end),
        "lag": None if end is None else max(0, end - committed.offset),
        "metadata": text.name(committed.metadata),
        "at_ms": committed.commit_wall_ms,
    }
