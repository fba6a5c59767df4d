"""The cluster in memory, with transactions: their coordinator, and a log that shows what was committed."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.coordinators import Coordinators
from oncelog.client.net.transaction import Transaction, TransactionName, begin_transaction
from oncelog.client.saving.saved import SavedProducer
from oncelog.error_codes import ErrorCodes as Code
from oncelog.records.header import read_header
from oncelog.records.read import records_of
from oncelog.slots import Place
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.saved_lanes import identity_of
from oncelog.spark.sink.state_topic import StateTopic
from tests.model.turns import point
from tests.spark.sink.twin import CLOCK, MemoryCluster, MemoryLog, MemoryProducer, MemoryTopic, World

PATIENCE_S = 1 << 30
PID = 1 << 33


@dataclass
class Open:
    added: set[Place] = field(default_factory=set)
    rows: list[tuple[Place, Any]] = field(default_factory=list)
    facts: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)


class Coordinator:
    """Of the one transactional id that there is. It answers as Kafka's does; any answer may be lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch = -1
        self.open: Open | None = None
        self.has_committed = False
        self.committed: list[tuple[Place, Any]] = []
        self.coordinators = Coordinators(self.coordinator)

    async def coordinator(self, key: str, kind: int) -> int:
        point()
        return 1

    async def request(self, node_id: int, name: str, build: Any, *, versions: Any) -> Any:
        point()
        self._lose()
        answer = getattr(self, name)(build(SimpleNamespace(new=lambda _, **values: SimpleNamespace(**values))))
        point()
        self._lose()
        return answer

    def _lose(self) -> None:
        if self.world.random.random() < 0.05:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "lost", retriable=True))

    def init_producer_id(self, _: Any) -> Any:
        self.open, self.has_committed = None, False
        self.epoch += 1
        return SimpleNamespace(error_code=0, producer_id=PID, producer_epoch=self.epoch)

    def add_partitions_to_txn(self, asked: Any) -> Any:
        code = self._code(asked.v3_and_below_producer_epoch)
        if not code:
            self.has_committed = False
            self.open = self.open or Open()
            for topic in asked.v3_and_below_topics:
                self.open.added |= {Place(topic.name, index) for index in topic.partitions}
        result = SimpleNamespace(partition_error_code=code)
        return SimpleNamespace(results_by_topic_v3_and_below=[SimpleNamespace(results_by_partition=[result])])

    def end_txn(self, asked: Any) -> Any:
        code = self._code(asked.producer_epoch)
        if not code and self.open is None and not self.has_committed:
            code = Code.INVALID_TXN_STATE
        if not code and self.open is not None:
            self.committed += self.open.rows
            self.world.topic.store(self.open.facts)
            self.world.topic.shown = self.world.topic.end
            self.open, self.has_committed = None, True
        return SimpleNamespace(error_code=code)

    def _code(self, epoch: int) -> int:
        return 0 if epoch == self.epoch else Code.PRODUCER_FENCED

    def written(self, place: Place, epoch: int) -> Open:
        """By who produces."""
        if epoch != self.epoch:
            raise KafkaException(KafkaError(Code.INVALID_PRODUCER_EPOCH))
        if self.open is None or place not in self.open.added:
            raise KafkaException(KafkaError(Code.INVALID_TXN_STATE))
        return self.open

    def expire(self) -> None:
        """Its time is over."""
        if self.open is not None:
            self.open = None
            self.epoch += 1


class TransactionalWorld(World):
    def __init__(self, random: Any) -> None:
        super().__init__(random)
        self.coordinator = Coordinator(self)


class TransactionalLog(MemoryLog):
    world: TransactionalWorld

    async def produce(self, batch: bytearray, transactional_id: str | None = None) -> int:
        if transactional_id is None:
            return await super().produce(batch)
        point()
        header = read_header(batch)
        assert header.is_transactional
        facts = self.world.coordinator.written(Place(self.topic, 0), header.producer_epoch).facts
        if not facts:  # else it is the same batch, sent again
            facts += [(record.key, record.value) for record in records_of(batch)]
        point()
        self.world.coordinator._lose()
        return 0


class TransactionalTopic(MemoryTopic):
    def __init__(self, world: TransactionalWorld) -> None:
        super().__init__(world)
        self._log = TransactionalLog(world)


class TransactionalProducer(MemoryProducer):
    world: TransactionalWorld
    _transaction: Transaction

    def start(self, saved: SavedProducer, *, is_fresh: bool, transaction: TransactionName | None = None) -> None:
        assert is_fresh
        assert transaction is not None
        self._transaction = Transaction(
            self.world.coordinator,  # type: ignore[arg-type]
            transaction,
            PATIENCE_S,
            clock=CLOCK,
        )
        super().start(saved, is_fresh=is_fresh)

    def _arrive(self) -> None:
        place, _, value = self._on_their_way.pop(0)
        MemoryCluster.run(None, self._transaction.add([place]))  # type: ignore[arg-type]
        point()
        self.world.coordinator.written(place, identity_of(self.began).generation).rows.append((place, value))


class TransactionalCluster(MemoryCluster):
    world: TransactionalWorld

    def log(self, sink: str) -> StateTopic:
        return TransactionalTopic(self.world)

    def producer(self, saved: SavedProducer) -> LaneProducer:
        producer: LaneProducer = self._kept.pop("producer", None) or TransactionalProducer(self.world)
        return producer

    def begin(self, transactional_id: str, timeout_ms: int) -> TransactionName:
        beginning = begin_transaction(
            self.world.coordinator,  # type: ignore[arg-type]
            transactional_id,
            timeout_ms,
            PATIENCE_S,
            clock=CLOCK,
        )
        name: TransactionName = self.run(beginning)
        return name

    def transaction(self, name: TransactionName) -> Transaction:
        return Transaction(self.world.coordinator, name, PATIENCE_S, clock=CLOCK)  # type: ignore[arg-type]
