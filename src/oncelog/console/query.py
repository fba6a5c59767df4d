"""What a request asks for, read from its query string, and the page of a list that it wants."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from oncelog.console.errors import Refused, not_found
from oncelog.console.limits import MOST_NAMES, MOST_ROWS, in_turns
from oncelog.server.broker import Broker
from oncelog.server.topic import Partition, Topic
from oncelog.server.turns import Turns

MOST_DIGITS = 19


class Query:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, key: str) -> str:
        return self._given.get(key, "")

    def number(self, key: str) -> int | None:
        """None where it is not given."""
        text = self._given.get(key, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
            raise Refused(400, f"{key} is a number from 0 on")
        return int(text)

    def page_start(self, found: int, page: int = MOST_ROWS) -> int:
        """Of the page that is asked for, or the last one there is."""
        return min(self.number("start") or 0, max(0, (found - 1) // page * page))

    def topic(self, broker: Broker) -> Topic:
        topic = broker.topics.get(self.text("topic"))
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
    turns: Turns, names: Iterable[str], query: Query, page: int = MOST_ROWS
) -> tuple[list[str], dict[str, Any]]:
    """The names on the page that is asked for, and what is to be told about it."""
    wanted = query.text("search").casefold()
    looked_at = list(islice(names, MOST_NAMES + 1))
    is_cut = len(looked_at) > MOST_NAMES
    found = [each async for each in in_turns(turns, looked_at[:MOST_NAMES]) if wanted in each.casefold()]
    found.sort()
    found.sort(key=lambda name: name.startswith("__"))  # internal ones come last
    start = query.page_start(len(found), page)
    return found[start : start + page], {"found": len(found), "start": start, "page": page, "is_cut": is_cut}
