"""A topic and its partitions, as the requests see them."""

from collections.abc import Callable

from oncelog.log.partition import End, Fate, PartitionLog
from oncelog.server.metadata_log import Definition
from oncelog.server.polls import NEVER, Polls


class Partition:
    """`waiters` are called once and forgotten when there is something new to read, or the partition is gone; `polls`
    when there is enough of it."""

    __slots__ = ("index", "is_deleted", "log", "polls", "topic", "waiters")

    def __init__(self, topic: "Topic", index: int, log: PartitionLog) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.is_deleted = False
        self.waiters: set[Callable[[], None]] = set()
        self.polls = Polls()

    def fate(self, end: End) -> Fate:
        """What is deleted keeps what was safe before."""
        fate = self.log.fate(end)
        return Fate.LOST if fate is Fate.WAITS and self.is_deleted else fate

    def wake(self) -> None:
        waiting, self.waiters = self.waiters, set()
        for waiter in waiting:
            waiter()
        if self.polls:
            is_gone = self.is_deleted or self.log.offline is not None
            self.polls.wake(NEVER if is_gone else self.log.appended_bytes)


class Topic:
    __slots__ = ("configs", "id", "is_internal", "name", "partitions")

    def __init__(self, definition: Definition) -> None:
        self.name = definition.name
        self.id = definition.id
        self.configs = dict(definition.configs)
        self.is_internal = definition.is_internal
        self.partitions: list[Partition] = []
