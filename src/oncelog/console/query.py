"""The query of a request, read from its query string, and the page of a list that it wants."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from oncelog.console.errors import Refused, not_found
from oncelog.console.limits import MOST_ROWS, MOST_SEARCHED, in_turns
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.access import EVERY_RIGHT, Rights
from oncelog.server.broker import Broker
from oncelog.server.topic import Partition, Topic
from oncelog.server.turns import Turns

MOST_DIGITS = 19


class Query:
    """A question of the page, with the rights of the user that asks."""

    def __init__(self, given: Mapping[str, str], rights: Rights = EVERY_RIGHT) -> None:
        self._given = given
        self._rights = rights

    def may_see(self, topic: str) -> bool:
        return self._rights.may(Operation.DESCRIBE, Resource.TOPIC, topic)

    def may_read(self, topic: str) -> bool:
        return self._rights.may(Operation.READ, Resource.TOPIC, topic)

    def may_see_group(self, group: str) -> bool:
        return self._rights.may(Operation.DESCRIBE, Resource.GROUP, group)

    def refuse_unless_cluster(self) -> None:
        """Raises `Refused`, as all of these."""
        if not self._rights.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            raise Refused(403, "This takes the right to DESCRIBE the cluster.")

    def refuse_unless_read(self, topic: str) -> None:
        if not self.may_read(topic):
            raise Refused(403, f"This takes the right to READ the topic {topic}.")

    def refuse_unless_group(self, group: str) -> None:
        if not self.may_see_group(group):
            raise Refused(403, f"This takes the right to DESCRIBE the group {group}.")

    def text(self, key: str) -> str:
        return self._given.get(key, "")

    def name(self, key: str) -> str:
        """One that must be given: without it neither rights nor anything else can be asked about."""
        name = self.text(key)
        if not name:
            raise Refused(400, f"say which {key}: ?{key}=NAME")
        return name

    def number(self, key: str) -> int | None:
        """None where it is not given."""
        text = self._given.get(key, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
            raise Refused(400, f"{key} is a number from 0 on")
        return int(text)

    def page_start(self, found: int, page: int = MOST_ROWS) -> int:
        """The start of the page that is asked for, or of the last one there is."""
        return min(self.number("start") or 0, max(0, (found - 1) // page * page))

    def topic(self, broker: Broker) -> Topic:
        name = self.name("topic")
        if not self.may_see(name):  # whether there is such a topic or not
            raise Refused(403, f"This takes the right to DESCRIBE the topic {name}.")
        topic = broker.topics.get(name)
        if topic is None:
            raise not_found("such topic")
        return topic

    def partition(self, broker: Broker) -> Partition:
        topic, index = self.topic(broker), self.number("partition") or 0
        if index >= len(topic.partitions):
            raise not_found(f"partition {index}: the topic has {len(topic.partitions)}")
        if not topic.partitions[index].is_open:
            raise not_found(f"partition {index}: another broker has it")
        return topic.partitions[index]


async def page_of(
    turns: Turns,
    names: Iterable[str],
    query: Query,
    page: int = MOST_ROWS,
    *,
    may: Callable[[str], bool],
) -> tuple[list[str], dict[str, Any]]:
    """The names on the page that is asked for, of those that may be seen, and what is to be told about it."""
    wanted = query.text("search").casefold()
    looked_at = list(islice(names, MOST_SEARCHED + 1))
    is_cut = len(looked_at) > MOST_SEARCHED
    found = [
        each async for each in in_turns(turns, looked_at[:MOST_SEARCHED]) if wanted in each.casefold() and may(each)
    ]
    found.sort()
    found.sort(key=lambda name: name.startswith("__"))  # internal ones come last
    start = query.page_start(len(found), page)
    return found[start : start + page], {"found": len(found), "start": start, "page": page, "is_cut": is_cut}
