"""A cluster that exists only in memory, for the fetching machine: it elects whom it likes, as the seed says.

Each partition has three replicas with logs of their own. Consumers read whatever their leader has, so an election of a
replica that lags behind truncates what was read already: the worst that can happen to a consumer, and often.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.client.fetching.values import (
    EARLIEST,
    EpochEndFound,
    Fetch,
    Fetched,
    FindEpochEnds,
    FindOffsets,
    Leader,
    OffsetFound,
)
from oncelog.records.build import build_batch
from oncelog.records.header import stamp
from oncelog.slots import AnyPlace

NOT_LEADER, FENCED, UNKNOWN_EPOCH, OUT_OF_RANGE, OFFSET_NOT_AVAILABLE = 6, 74, 75, 1, 78
NODES = (1, 2, 3)


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    values: tuple[tuple[int, bytes], ...]  # offset and value
    data: bytes


@dataclass
class Log:
    batches: list[Batch] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def values(self) -> list[tuple[int, bytes]]:
        return [each for batch in self.batches for each in batch.values]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to this one, and where it ends."""
        known = [batch for batch in self.batches if batch.epoch <= epoch]
        return (known[-1].epoch, known[-1].next_offset) if known else (-1, -1)


class SimulatedPartition:
    def __init__(self, chance: random.Random) -> None:
        self.logs = {node: Log() for node in NODES}
        self.leader = chance.choice(NODES)
        self.epoch = 0
        self.history = [Leader(self.leader, 0)]
        self._chance = chance

    @property
    def log(self) -> Log:
        return self.logs[self.leader]

    def append(self) -> None:
        """A few records; compaction has taken some of their neighbours."""
        base = self.log.end
        count = self._chance.randint(1, 4)
        values = [(base + i, f"{base + i}@{self.epoch}".encode()) for i in range(count)]
        data = build_batch([(None, value, (), 1) for _, value in values], base_offset=base)
        stamp(data, 0, base, self.epoch)
        self.log.batches.append(Batch(base, base + count, self.epoch, tuple(values), bytes(data)))

    def replicate(self) -> None:
        """One follower gets some more of the leader's log, after what differs is gone."""
        follower = self.logs[self._chance.choice([node for node in NODES if node != self.leader])]
        common = 0
        for mine, its in zip(self.log.batches, follower.batches, strict=False):
            if mine != its:
                break
            common += 1
        follower.batches = self.log.batches[: self._chance.randint(common, len(self.log.batches))]

    def elect(self) -> None:
        self.leader = self._chance.choice(NODES)
        self.epoch += self._chance.randint(1, 2)
        self.history.append(Leader(self.leader, self.epoch))


class SimulatedCluster:
    def __init__(self, partitions: list[AnyPlace], chance: random.Random) -> None:
        self.partitions = {each: SimulatedPartition(chance) for each in partitions}
        self.is_faulty = True
        self._chance = chance

    def metadata(self) -> dict[AnyPlace, Leader]:
        """From a broker that may lag behind."""
        known = {}
        for each, partition in self.partitions.items():
            late = self._chance.randint(0, 1) if self.is_faulty else 0
            known[each] = partition.history[max(-1 - late, -len(partition.history))]
        return known

    def _error(self, node: int, partition: SimulatedPartition, epoch: int) -> int:
        if partition.leader != node:
            return NOT_LEADER
        if epoch >= 0 and epoch != partition.epoch:
            return FENCED if epoch < partition.epoch else UNKNOWN_EPOCH
        return OFFSET_NOT_AVAILABLE if self.is_faulty and self._chance.random() < 0.05 else 0

    def fetch(self, request: Fetch) -> list[Fetched]:
        left_bytes = request.max_bytes
        answers: list[Fetched] = []
        for asked in request.asked:
            partition = self.partitions[asked.partition]
            error = self._error(request.node_id, partition, asked.leader_epoch)
            log = partition.log
            if not error and asked.offset > log.end:
                error = OUT_OF_RANGE
            records = b""
            if not error and not (self.is_faulty and self._chance.random() < 0.1):
                records = self._read(log, asked.offset, min(left_bytes, asked.max_bytes), at_least_one=not answers)
            left_bytes -= len(records)
            answers.append(Fetched(asked.partition, error, log.end, log.end, 0, [], -1, records))
        if self.is_faulty and self._chance.random() < 0.05:
            answers.pop()
        return answers

    def _read(self, log: Log, offset: int, most_bytes: int, *, at_least_one: bool) -> bytes:
        data = b""
        for batch in log.batches:
            if batch.next_offset > offset:
                if len(data) + len(batch.data) > most_bytes and (data or not at_least_one):
                    break
                data += batch.data
        return data

    def offsets(self, request: FindOffsets) -> list[OffsetFound]:
        answers = []
        for each, epoch, time in request.asked:
            partition = self.partitions[each]
            error = self._error(request.node_id, partition, epoch)
            offset = 0 if time == EARLIEST else partition.log.end
            last_epoch = partition.log.batches[-1].epoch if partition.log.batches else -1
            answers.append(OffsetFound(each, error, offset, -1 if time == EARLIEST else last_epoch))
        return answers

    def epoch_ends(self, request: FindEpochEnds) -> list[EpochEndFound]:
        answers = []
        for each, leader_epoch, epoch in request.asked:
            partition = self.partitions[each]
            error = self._error(request.node_id, partition, leader_epoch)
            answers.append(EpochEndFound(each, error, *partition.log.end_of_epoch(epoch)))
        return answers
