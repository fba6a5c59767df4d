"""Reading the sink's topic while its leader changes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from oncelog.client.errors import KafkaException
from oncelog.spark.sink.standing import Entry
from oncelog.spark.sink.state import Fetched, SinkTopic
from tests.spark.sink.test_standing import Log


class LaggingTopic(SinkTopic):
    """The leader that told the end is gone; the next one has every record, and learns step by step that they count."""

    def __init__(self, entries: list[Entry], high_watermarks: list[int]) -> None:
        self._entries = entries
        self._high_watermarks = high_watermarks

    async def patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await ask()
            except KafkaException as failure:
                assert failure.error.retriable()

    async def _bounds(self) -> tuple[int, int]:
        return 0, len(self._entries)

    async def _fetch(self, offset: int) -> Fetched:
        end = self._high_watermarks.pop(0) if self._high_watermarks else len(self._entries)
        found = self._entries[offset:end]
        return Fetched(found, max(offset, end), end)


def test_what_a_new_leader_does_not_show_yet_is_waited_for_and_not_passed_over() -> None:
    """Passed over, a claim would be taken for one that nobody made, and the lane's rows would go out a second time."""
    log = Log()
    log.sink()
    log.claim(0, 0, "first")
    for high_watermark in range(len(log.entries)):
        topic = LaggingTopic(log.entries, [high_watermark, high_watermark])
        standing = asyncio.run(topic.read())
        assert (standing.owner, standing.claims) == (log.standing.owner, log.standing.claims)
        assert standing.next_offset == len(log.entries)
