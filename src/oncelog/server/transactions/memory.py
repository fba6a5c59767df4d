"""The transactional ids that this broker coordinates, as far as they move with the partitions of `__transaction_state`:
see `server/moves.py`. Ids, and the partitions of all their transactions, are held in fair shares."""

from collections.abc import Callable

from oncelog.log.work_steps import Pauses
from oncelog.server.coordinator_topic import BadRecord, CoordinatorTopic
from oncelog.server.moves import IsOn, Records
from oncelog.server.shares import Shares
from oncelog.server.topics import Partition
from oncelog.transactions import records
from oncelog.transactions.machine import TopicPartition, Transaction
from oncelog.transactions.records import BadState

IDS_AT_A_TIME = 200
MOST_PARTITIONS = 1_000_000  # of all transactions: some 150 bytes each


class Entry:
    """One transactional id. `is_pending`: what it comes to next is on its way to the log."""

    __slots__ = ("coming", "epoch", "is_pending", "made_by", "missing", "now", "told", "transactional_id", "waiting")

    def __init__(self, transactional_id: str, now: Transaction, epoch: int, made_by: str = "") -> None:
        self.transactional_id = transactional_id
        self.now = now
        self.epoch = epoch  # of the partition that it is kept in: the coordinator's
        self.made_by = made_by  # the host of the client, where it is known: the log does not say it
        self.is_pending = False
        self.coming = 0  # partitions more than now, of what is on its way
        self.missing: set[TopicPartition] = set()  # without a marker, of what is decided
        self.waiting: set[TopicPartition] = set()  # those of them whose marker is appended here, and not safe yet
        self.told: Callable[[], None] | None = None  # called when none is missing any more


class TransactionMemory:
    def __init__(self, topic: CoordinatorTopic, most_ids: int, came: Callable[[Entry], None]) -> None:
        self.topic = topic
        self.entries: dict[str, Entry] = {}
        self.came = came
        self._most_ids = most_ids
        self._ids, self._partitions = Shares(), Shares()
        self.partitions_held = 0

    def finding(self, partition: Partition) -> "FoundTransactions":
        return FoundTransactions(self, partition)

    def letting_go(self, partition: Partition, is_on: IsOn) -> Pauses:
        for count, name in enumerate(list(self.entries), 1):
            if self.topic.partition_of(name) is partition:
                self.forget(name)
            if count % IDS_AT_A_TIME == 0:
                yield
                if not is_on():
                    return

    def is_current(self, entry: Entry) -> bool:
        return self.entries.get(entry.transactional_id) is entry and self.topic.is_here(entry.transactional_id)

    def has_room(self, host: str) -> bool:
        """Whether there is room for an id more of that host."""
        return self._ids.has_room(host, self._most_ids - len(self.entries))

    def has_room_for(self, entry: Entry, new: Transaction) -> bool:
        """Whether there is room for the partitions that it has more than before."""
        more = len(new.partitions) - len(entry.now.partitions)
        return more <= 0 or self._partitions.has_room(entry.made_by, MOST_PARTITIONS - self.partitions_held, more)

    def add(self, entry: Entry) -> None:
        self.forget(entry.transactional_id)
        self.entries[entry.transactional_id] = entry
        self._ids.take(entry.made_by)
        self._hold(entry, len(entry.now.partitions))

    def begin_change(self, entry: Entry, new: Transaction) -> None:
        """It is on its way to the log. What it has more counts already: very many may be."""
        entry.is_pending = True
        entry.coming = max(len(new.partitions) - len(entry.now.partitions), 0)
        self._hold(entry, entry.coming)

    def end_change(self, entry: Entry) -> None:
        """It is there, or will not be."""
        entry.is_pending = False
        coming, entry.coming = entry.coming, 0
        self._hold(entry, -coming)

    def change(self, entry: Entry, new: Transaction, epoch: int) -> None:
        """Take in a change that is stored."""
        self._hold(entry, len(new.partitions) - len(entry.now.partitions))
        entry.now, entry.epoch = new, epoch

    def forget(self, transactional_id: str) -> None:
        """Here alone; the log keeps it."""
        entry = self.entries.pop(transactional_id, None)
        if entry is not None:
            self._ids.give_back(entry.made_by)
            self._hold(entry, -len(entry.now.partitions))

    def _hold(self, entry: Entry, more: int) -> None:
        self.partitions_held += more
        if more > 0:
            self._partitions.take(entry.made_by, more)
        elif more < 0:
            self._partitions.give_back(entry.made_by, -more)


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
        for count, entry in enumerate(entries, 1):
            if not is_on():
                return
            memory.add(entry)
            if count % IDS_AT_A_TIME == 0:
                yield
        if not is_on():
            return
        memory.topic.served[self._partition.index] = epoch
        memory.topic.loading.discard(self._partition.index)
        for count, entry in enumerate(entries, 1):
            memory.came(entry)
            if count % IDS_AT_A_TIME == 0:
                yield
                if not is_on():
                    return
