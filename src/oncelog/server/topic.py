"""A topic and its partitions, as the requests see them."""

from collections.abc import Callable
from typing import Any, cast

from oncelog.log.config import LogConfig
from oncelog.log.partition import End, Fate, PartitionLog
from oncelog.replication.leadership import Leadership
from oncelog.replication.replica import Replica
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.metadata_log import Definition
from oncelog.server.polls import NEVER, Polls


class _Elsewhere:
    """The log of a partition that is not open here."""

    __slots__ = ("partition",)

    def __init__(self, partition: "Partition") -> None:
        self.partition = partition

    def __getattr__(self, name: str) -> Any:
        at = self.partition
        raise KafkaError(ErrorCode.not_leader_or_follower, f"{at.topic.name}-{at.index} is not on this broker")


class Partition:
    """`waiters` are called once and forgotten when there is something new to read, or the partition is gone; `polls`
    when there is enough of it.

    `log` is there while it is open on this broker. Where it is not, to ask it anything raises what Kafka answers: that
    another broker has it. Clients are served by the broker that `leads`; a server that stands alone leads everything.
    """

    __slots__ = ("index", "is_deleted", "is_open", "leadership", "leads", "log", "polls", "replica", "topic", "waiters")

    log: PartitionLog

    def __init__(self, topic: "Topic", index: int, log: PartitionLog | None = None) -> None:
        self.topic = topic
        self.index = index
        self.is_open = self.leads = False
        self.leadership: Leadership | None = None  # as brokers have agreed on it; None where there are no others
        self.replica: Replica | None = None  # this broker's part of it
        if log is not None:
            self.open(log)
            self.leads = True
        else:
            self.log = cast(PartitionLog, _Elsewhere(self))
        self.is_deleted = False
        self.waiters: set[Callable[[], None]] = set()
        self.polls = Polls()

    def open(self, log: PartitionLog) -> None:
        self.log = log
        self.is_open = True

    def close(self) -> PartitionLog:
        """Nobody here is served from it any more; the log is for the caller to close."""
        log = self.log
        self.is_open = self.leads = False
        self.replica = None
        self.log = cast(PartitionLog, _Elsewhere(self))
        return log

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether there are enough in sync for acks=all: as many brokers as `min.insync.replicas` says."""
        replica = self.replica
        return replica is None or replica.leader is None or replica.leader.has_enough

    @property
    def is_past_earlier_leaders(self) -> bool:
        """Whether all that an earlier leader may have acknowledged is below the high watermark: until then a reader
        could be told of less than it was told before."""
        replica = self.replica
        return replica is None or replica.leader is None or self.log.high_watermark >= replica.leader.epoch_start

    def appended(self) -> None:
        """Something was, so the high watermark may move, and those who wait for it, or for records, are called."""
        if self.replica is not None:
            self.replica.move_high_watermark()
        if self.waiters or self.polls.waiting:
            self.wake()

    def fate(self, end: End) -> Fate:
        """The fate of a batch that ends there. A deleted topic keeps what was safe before; under another leader it
        is not known here."""
        if not self.leads:
            return Fate.LOST
        fate = self.log.fate(end)
        return Fate.LOST if fate is Fate.WAITS and self.is_deleted else fate

    def wake(self) -> None:
        waiting, self.waiters = self.waiters, set()
        for waiter in waiting:
            waiter()
        if self.polls:
            is_gone = self.is_deleted or not self.leads or self.log.offline is not None
            self.polls.wake(NEVER if is_gone else self.log.appended_bytes)


class Topic:
    __slots__ = ("configs", "id", "is_internal", "log_config", "name", "partitions")

    def __init__(self, definition: Definition, log_config: LogConfig) -> None:
        self.name = definition.name
        self.id = definition.id
        self.configs = dict(definition.configs)
        self.log_config = log_config  # what they and the server's settings come to
        self.is_internal = definition.is_internal
        self.partitions: list[Partition] = []

    @property
    def open_partitions(self) -> list[Partition]:
        """The partitions whose logs are on this broker."""
        return [each for each in self.partitions if each.is_open]
