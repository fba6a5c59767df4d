"""Produce requests on their way: one connection to each node, requests of a node in their order."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from uuid import UUID

from oncelog.client.errors import KafkaError, KafkaException, is_retriable
from oncelog.client.net.connection import Connection
from oncelog.client.net.metadata import NO_LEADER as NO_LEADER_NODE
from oncelog.client.net.metadata import BrokerAddress
from oncelog.client.net.tasks import Tasks
from oncelog.clock import monotonic_s
from oncelog.slots import Place
from oncelog.slots.lease import FOREVER_MS
from oncelog.slots.messages import BatchAnswer, Produce
from oncelog.wire.fields import NO_LEADER
from oncelog.wire.frames import MalformedFrame
from oncelog.wire.hot import PRODUCE_TOPIC_IDS
from oncelog.wire.hot_client import (
    PRODUCE_KEY,
    PRODUCE_VERSIONS,
    PRODUCE_VERSIONS_BY_NAME,
    PRODUCE_VERSIONS_IN_TRANSACTION,
    ProduceAnswer,
    ProducedPartition,
    pack_produce,
    read_produce_answer,
)

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.net.transaction import Transaction
    from oncelog.client.properties import ProducerSettings

_log: Final = logging.getLogger("oncelog.client")

ACKS_NOBODY: Final = 0
RECORD: Final = "record {index} of its batch: "
ANSWER_SLACK_MS: Final = 1000  # for the way there and back; librdkafka's
OnAnswered = Callable[[int, list[BatchAnswer] | None, int], None]  # request, what it says, throttle time
OnLost = Callable[[int, KafkaError, bool], None]  # request, why, whether any of it may have been sent
OnUnchecked = Callable[[int], None]  # request: it was not sent, since what was known of its slots is too old


class Requests:
    def __init__(
        self,
        brokers: "Brokers",
        settings: "ProducerSettings",
        on_answered: OnAnswered,
        on_lost: OnLost,
        on_unchecked: OnUnchecked,
    ) -> None:
        self._brokers = brokers
        self._acks = settings.acks
        self._client_id = settings.client_id
        self._timeout_ms = settings.request_timeout_ms
        self._patience_ms = settings.socket_timeout_ms
        if self._timeout_ms > self._patience_ms:
            # The broker may take that long, so hanging up before would put what it stores in doubt.
            self._patience_ms = self._timeout_ms + ANSWER_SLACK_MS
        self._on_answered = on_answered
        self._on_lost = on_lost
        self._on_unchecked = on_unchecked
        self._connections: dict[int, Connection] = {}
        self._waiting: dict[int, deque[Produce]] = {}
        self._tasks = Tasks()
        self._names: dict[str, bytes] = {}
        self._ids: dict[str, bytes] = {}
        self.transaction: Transaction | None = None  # that everything belongs to which is sent from here on

    def identify(self, topic: str, topic_id: UUID) -> None:
        """No other topic of this name is written to from here on, where brokers take ids."""
        self._ids[topic] = topic_id.bytes

    def send(self, request: Produce) -> None:
        node_id = request.node_id
        connection = self.connected(node_id)
        if connection is not None and (self.transaction is None or self.transaction.has(_places(request))):
            self.write(connection, request)
            return
        waiting = self._waiting.get(node_id)
        if waiting is None:
            waiting = self._waiting[node_id] = deque()
            self._tasks.begin(self._connect(node_id, waiting))
        waiting.append(request)

    async def connect(self, node_id: int) -> Connection:
        """A connection for who looks at the log first, and sends on the one that was there then: `connected` says
        whether it still is."""
        connection = self._connections[node_id] = await self._brokers.connection(node_id)
        return connection

    def connected(self, node_id: int) -> Connection | None:
        """The connection that `send` writes to at once."""
        connection = self._connections.get(node_id)
        return None if connection is None or connection.is_closed or node_id in self._waiting else connection

    async def close(self) -> None:
        await self._tasks.close()

    async def _connect(self, node_id: int, waiting: deque[Produce]) -> None:
        """Connect, check, send: what was known of slots before a connection is asked again on it. In a transaction the
        partitions are named first, while what follows waits."""
        was_open = self._brokers.is_connected(node_id)
        try:
            connection = self._connections[node_id] = await self._brokers.connection(node_id)
            while self.transaction is not None and not self.transaction.has(_all_places(waiting)):
                await self.transaction.add(_all_places(waiting))
        except BaseException as failure:
            del self._waiting[node_id]
            if _is_final(failure):
                for request in waiting:
                    self._on_answered(request.request_id, _refused(request, failure), 0)
                return
            error = _why(failure)
            for request in waiting:
                self._on_lost(request.request_id, error, False)
            if not isinstance(failure, Exception):
                raise
            return
        del self._waiting[node_id]
        for request in waiting:
            if request.is_checked and not was_open:
                self._on_unchecked(request.request_id)
            else:
                self.write(connection, request)

    def write(self, connection: Connection, request: Produce) -> None:
        if connection.is_closed:
            self._on_lost(request.request_id, connection.lost_by or KafkaError(KafkaError._TRANSPORT), False)
            return
        if request.until_ms < FOREVER_MS and monotonic_s() * 1000 >= request.until_ms:
            self._on_unchecked(request.request_id)  # this process slept meanwhile
            return
        correlation_id = connection.next_correlation_id()
        try:
            by_id = bool(self._ids) and all(batch.topic in self._ids for batch in request.batches)
            transaction = self.transaction
            versions = PRODUCE_VERSIONS if by_id else PRODUCE_VERSIONS_BY_NAME
            if transaction is not None:
                versions = PRODUCE_VERSIONS_IN_TRANSACTION
            version = connection.version(PRODUCE_KEY, *versions)
            topics, asked = _by_topic(request, self._ids if version >= PRODUCE_TOPIC_IDS else self._names)
            buffers = pack_produce(
                version,
                correlation_id,
                self._client_id,
                topics,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
                transactional_id=None if transaction is None else transaction.name.transactional_id,
            )
        except Exception as failure:
            self._on_lost(request.request_id, _why(failure), False)
            return
        if self._acks == ACKS_NOBODY:
            connection.send(buffers, correlation_id, None)
            self._on_answered(request.request_id, None, 0)
            return
        request_id = request.request_id

        def on_answer(frame: memoryview | None, error: KafkaError | None) -> None:
            if frame is None:
                self._on_lost(request_id, error or KafkaError(KafkaError._TRANSPORT), True)
                return
            try:
                answer = read_produce_answer(version, frame)
                answers = _answers(answer, asked)
            except MalformedFrame as malformed:
                rubbish = KafkaError(KafkaError._BAD_MSG, f"{connection.endpoint}: {malformed}")
                self._on_lost(request_id, rubbish, True)
                connection.close(rubbish)
                return
            self._learn(answer, asked)
            if connection.traffic is not None:
                connection.traffic.throttle_ms.add(answer.throttle_ms)
            self._on_answered(request_id, answers, answer.throttle_ms)

        connection.send(buffers, correlation_id, on_answer, self._patience_ms)

    def _learn(self, answer: ProduceAnswer, asked: Mapping[bytes, str]) -> None:
        """A broker that leads no more may name who does (KIP-951): nobody need ask."""
        leaders = [
            (asked[each.topic], each.partition, *each.leader)
            for each in answer.partitions
            if each.leader is not NO_LEADER
        ]
        if leaders:
            self._brokers.learn(leaders, [BrokerAddress(*each) for each in answer.endpoints])


async def take_ids(brokers: "Brokers", places: Iterable[Place]) -> bool:
    """Whether all that lead these places take topics by their ids, and so nothing for another one of the same name."""
    for node_id in {brokers.metadata.leader(*place)[0] for place in places}:
        if node_id == NO_LEADER_NODE:
            return False
        connection = await brokers.connection(node_id)
        if connection.version(PRODUCE_KEY, *PRODUCE_VERSIONS) < PRODUCE_TOPIC_IDS:
            return False
    return True


def _places(request: Produce) -> list[Place]:
    return [batch.place for batch in request.batches]


def _all_places(requests: Iterable[Produce]) -> set[Place]:
    return {place for request in requests for place in _places(request)}


def _is_final(failure: BaseException) -> TypeGuard[KafkaException]:
    """The coordinator said that the transaction is over."""
    return isinstance(failure, KafkaException) and failure.error.code() > 0 and not is_retriable(failure.error.code())


def _refused(request: Produce, failure: KafkaException) -> list[BatchAnswer]:
    error = failure.error
    return [BatchAnswer(batch.topic, batch.partition, error.code(), message=error.str()) for batch in request.batches]


def _by_topic(
    request: Produce, names: dict[str, bytes]
) -> tuple[list[tuple[bytes, list[tuple[int, Any]]]], dict[bytes, str]]:
    """The records to send for each topic, and which topics these are."""
    topics: dict[bytes, list[tuple[int, Any]]] = {}
    asked: dict[bytes, str] = {}
    for batch in request.batches:
        name = names.get(batch.topic)
        if name is None:
            name = names[batch.topic] = batch.topic.encode()
        topics.setdefault(name, []).append((batch.partition, batch.data))
        asked[name] = batch.topic
    return list(topics.items()), asked


def _why(failure: BaseException) -> KafkaError:
    if isinstance(failure, KafkaException):
        return failure.error
    if not isinstance(failure, Exception):
        return KafkaError(KafkaError._DESTROY, "the producer is closed")
    _log.error("a Produce request could not be sent, for a reason that is not known", exc_info=failure)
    return KafkaError(KafkaError._FAIL, f"a Produce request could not be sent: {failure!r}")


def _message(said: ProducedPartition) -> str | None:
    """The error message, with the number of the record in it where the broker names one."""
    if not said.record_errors:
        return said.error_message
    index, message = said.record_errors[0]
    return RECORD.format(index=index) + (message or said.error_message or "")


def _answers(answer: ProduceAnswer, asked: Mapping[bytes, str]) -> list[BatchAnswer]:
    try:
        return [
            BatchAnswer(asked[each.topic], each.partition, each.error_code, each.base_offset, each.append_time_ms,
                   _message(each))
            for each in answer.partitions
        ]  # fmt: skip
    except KeyError:
        raise MalformedFrame("an answer about a topic that nothing was sent to") from None
