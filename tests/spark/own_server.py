"""A server in this process, whose logs are compacted when it suits a test."""

from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.clock import SystemClock
from oncelog.embedded import Server


@contextmanager
def own_server() -> Iterator[Server]:
    """It compacts nothing by itself."""
    with Server(settings={"log.cleaner.enable": "false", "auto.create.topics.enable": "false"}) as server:
        yield server


def compact(server: Server, topic: str) -> None:
    def now() -> None:
        partition = server.broker.topics.partition(topic, 0)
        assert partition is not None
        segments = partition.log.segments
        if segments.active.end_offset > segments.active.base_offset:
            segments.roll()
        partition.log.compact(SystemClock().now())

    server.call(now)
