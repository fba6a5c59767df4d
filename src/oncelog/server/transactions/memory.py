"""The transactional ids that this broker coordinates, as far as they move with the partitions of `__transaction_state`:
see `server/moves.py`."""

from collections.abc import Callable

from oncelog.log.steps import Pauses
from oncelog.server.coordinator_topic import BadRecord, CoordinatorTopic
from oncelog.server.moves import IsOn, Records
from oncelog.server.topics import Partition
from oncelog.transactions import records
from oncelog.transactions.machine import TopicPartition, Transaction
from oncelog.transactions.records import BadState

IDS_AT_A_TIME = 200


class Entry:
    """One transactional id. `is_pending`: what it comes to next is on its way to the log."""

    __slots__ = ("epoch", "is_pending", "missing", "now", "transactional_id", "was_fence_tried")

    def __init__(self, transactional_id: str, now: Transaction, epoch: int) -> None:
        self.transactional_id = transactional_id
        self.now = now
        self.epoch = epoch  # of the partition that it is kept in: the coordinator's
        self.is_pending = False
        self.was_fence_tried = False
        self.missing: set[TopicPartition] = set()  # without a marker, of what is decided


class TransactionMemory:
    def __init__(self, topic: CoordinatorTopic, came: Callable[[Entry], None]) -> None:
        self.topic = topic
        self.entries: dict[str, Entry] = {}
        self.came = came

    def finding(self, partition: Partition) -> "FoundTransactions":
        return FoundTransactions(self, partition)

    def letting_go(self, partition: Partition, is_on: IsOn) -> Pauses:
        for count, name in enumerate(list(self.entries), 1):
            if self.topic.partition_of(name) is partition:
                self.entries.pop(name, None)
            if count % IDS_AT_A_TIME == 0:
                yield
                if not is_on():
                    return

    def is_current(self, entry: Entry) -> bool:
        return self.entries.get(entry.transactional_id) is entry and self.topic.is_here(entry.transactional_id)


class FoundTransactions:
    def __init__(self, memory: TransactionMemory, partition: Partition) -> None:
        self._memory = memory
        self._partition = partition
        self._found: dict[str, Transaction] = {}

    def note(self, key: bytes, offset: int, value: bytes | None) -> None:
        name = records.decode_key(key)
        if name is not None and value is not None:
            try:
                self._found[name] = records.decode(value)
            except BadState as damage:
                raise BadRecord(str(damage)) from damage

    def note_open(self, pid: int, records: Records) -> None:
        """Nothing is written here in transactions."""

    def serving(self, epoch: int, is_on: IsOn) -> Pauses:
        memory, entries = self._memory, []
        for count, (name, transaction) in enumerate(self._found.items(), 1):
            entries.append(Entry(name, transaction, epoch))
            if count % IDS_AT_A_TIME == 0:
                yield
        if not is_on():
            return
        memory.entries.update((each.transactional_id, each) for each in entries)
        memory.topic.served[self._partition.index] = epoch
        memory.topic.loading.discard(self._partition.index)
        for count, entry in enumerate(entries, 1):
            memory.came(entry)
            if count % IDS_AT_A_TIME == 0:
                yield
                if not is_on():
                    return
