"""One transaction whose numbers several processes share: one begins it, some write to it, one ends it.

By the first version of transactions, which every broker since 2.5 speaks: who writes says to which partitions, and the
end leaves the epoch as it is. So an end whose answer was lost is asked for again, and comes out the same.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.client.errors import KafkaError, exception_of
from oncelog.client.net.offsets import with_topics
from oncelog.client.net.retry import CLOCK, Clock, Patience, ask
from oncelog.slots import Identity, Place

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

TRANSACTION: Final = 1  # the kind of coordinator
BEGIN_VERSIONS: Final = (2, 4)
ADD_VERSIONS: Final = (0, 3)
END_VERSIONS: Final = (0, 4)  # the fifth raises the epoch
PAUSE_S: Final = 0.02  # a transaction that was open before is over within some milliseconds
MOST_PAUSE_S: Final = 1.0


class TransactionName(NamedTuple):
    """The name of a transaction that no other one has: its writer, and which life of it."""

    transactional_id: str
    identity: Identity


class Transaction:
    """A transaction of one client. Its partitions may have been named by another one; who has not done so names them
    again."""

    def __init__(self, brokers: "Brokers", name: TransactionName, patience_s: float, *, clock: Clock = CLOCK) -> None:
        self.name = name
        self._coordinator = _Coordinator(brokers, name.transactional_id)
        self._patience = _patience(patience_s)
        self._clock = clock
        self._partitions: set[Place] = set()

    def has(self, places: Iterable[Place]) -> bool:
        return self._partitions.issuperset(places)

    async def add(self, places: Iterable[Place]) -> None:
        """Add partitions, which may be written to from now on."""
        new = sorted(set(places) - self._partitions)
        if not new:
            return

        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new("AddPartitionsToTxnTopic", name=topic, partitions=tuple(index for index, _ in indexes))
                for topic, indexes in with_topics((place, None) for place in new).items()
            )
            name, (pid, epoch, _) = self.name
            return spoken.new(
                "AddPartitionsToTxnRequest",
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=pid,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )

        async def once() -> None:
            await self._coordinator.asked("add_partitions_to_txn", build, ADD_VERSIONS, code_of=_code_of_partitions)

        await ask(once, self._patience, clock=self._clock)
        self._partitions.update(new)

    async def end(self, *, commits: bool) -> None:
        """End the transaction. Once this is answered it is decided, whichever process dies."""

        def build(spoken: Any) -> Any:
            name, (pid, epoch, _) = self.name
            return spoken.new(
                "EndTxnRequest", transactional_id=name, producer_id=pid, producer_epoch=epoch, committed=commits
            )

        async def once() -> None:
            await self._coordinator.asked("end_txn", build, END_VERSIONS)

        await ask(once, self._patience, clock=self._clock)


async def begin_transaction(
    brokers: "Brokers", transactional_id: str, timeout_ms: int, patience_s: float, *, clock: Clock = CLOCK
) -> TransactionName:
    """The transaction has an epoch of its own: nobody who began before can write or commit now, and what he left open
    is aborted. What he had committed shows everywhere by the time that this is answered."""

    def build(spoken: Any) -> Any:
        return spoken.new(
            "InitProducerIdRequest",
            transactional_id=transactional_id,
            transaction_timeout=timedelta(milliseconds=timeout_ms),
            producer_id=-1,
            producer_epoch=-1,
        )

    coordinator = _Coordinator(brokers, transactional_id)

    async def once() -> Identity:
        answer = await coordinator.asked("init_producer_id", build, BEGIN_VERSIONS)
        return Identity(int(answer.producer_id), int(answer.producer_epoch))

    identity = await ask(once, _patience(patience_s), clock=clock)
    return TransactionName(transactional_id, identity)


def _code_of(answer: Any) -> int:
    return int(answer.error_code)


def _code_of_partitions(answer: Any) -> int:
    codes = {
        int(each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    refusals = codes - {0, KafkaError.OPERATION_NOT_ATTEMPTED}  # those were not, because of another one
    return min(refusals or codes - {0}, default=0)


class _Coordinator(NamedTuple):
    """The coordinator of one transactional id."""

    brokers: "Brokers"
    transactional_id: str

    async def asked(
        self, what: str, build: Any, versions: tuple[int, int], *, code_of: Callable[[Any], int] = _code_of
    ) -> Any:
        async with self.brokers.coordinators.at(self.transactional_id, TRANSACTION) as node_id:
            answer = await self.brokers.request(node_id, what, build, versions=versions)
            code = code_of(answer)
            if code:
                raise exception_of(code)
            return answer


def _patience(total_s: float) -> Patience:
    return Patience(total_s, PAUSE_S, MOST_PAUSE_S)
