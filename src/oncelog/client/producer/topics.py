"""The topics that the engine knows: it makes unknown ones known, and fails their records where that cannot be."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from oncelog.client.errors import KafkaError, KafkaException, error_of, exception_of, is_retriable
from oncelog.client.net.retry import NoAnswer, Patience, ask
from oncelog.client.partitioners import partitioner
from oncelog.client.producer.accumulator import NEVER_S, Held, Topic, Unbatched
from oncelog.client.producer.notices import Repeats
from oncelog.clock import monotonic_s
from oncelog.error_codes import ErrorCodes as Code
from oncelog.slots import Place

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.net.metadata import TopicMetadata
    from oncelog.client.properties import ProducerSettings


Fail = Callable[[Topic, list[Held], KafkaError], None]


class Topics:
    """`place` puts a record that was held into its partition; `fail` reports those that cannot be; `gone` gets
    partitions that are there no more."""

    def __init__(
        self,
        brokers: "Brokers",
        settings: "ProducerSettings",
        place: Callable[[Topic, Sequence[Unbatched], Held], object],
        fail: Fail,
        gone: Callable[[Sequence[Unbatched]], None],
        repeats: Repeats,
    ) -> None:
        self.known: dict[str, Topic] = {}  # threads that produce read it, and put new topics in
        self._brokers = brokers
        self._settings = settings
        self._place = place
        self._fail = fail
        self._gone = gone
        self._repeats = repeats
        # Without an end: records that are too old give up by themselves.
        self._patience = Patience(inf, settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        self._hash = partitioner(settings.partitioner).hash
        self.tasks: dict[str, asyncio.Task[None]] = {}
        # Set where every topic is pinned as it is first produced to; then nothing else adopts one.
        self.pin_by: Callable[[str], Awaitable[None]] | None = None

    def want(self, topic: Topic) -> None:
        """Records are held for it."""
        running = self.tasks.get(topic.name)
        # One that is done and still here was for a topic of this name that was given up.
        if (running is None or running.done()) and not topic.partitions:
            task = self.tasks[topic.name] = asyncio.create_task(self.make_known(topic))
            task.add_done_callback(partial(self._forget_task, topic.name))

    def _forget_task(self, name: str, task: asyncio.Task[None]) -> None:
        if self.tasks.get(name) is task:
            del self.tasks[name]

    def open(self, name: str) -> Topic:
        """The topic, made if nobody has used it yet; from any thread, and two at once get the same."""
        topic = self.known.get(name)
        if topic is None:
            made = Topic(name, monotonic_s(), self._settings.sticky_partitioning_linger_ms)
            topic = self.known.setdefault(name, made)
        return topic

    async def know(self, name: str) -> Topic:
        """The topic with its partitions; raises where it cannot be had before a record would be given up."""
        topic = self.open(name)
        self.want(topic)
        task = self.tasks.get(name)
        if task is not None and not topic.partitions:
            timeout_s = self._settings.delivery_timeout_ms / 1000 or None
            await asyncio.wait((task,), timeout=timeout_s)
        if not topic.partitions:
            raise KafkaException(topic.error or self._repeats.late())
        return topic

    def leaders(self) -> dict[Place, int | None]:
        """The leaders of all topics that were produced to."""
        found: dict[Place, int | None] = {}
        for name in tuple(self.known):
            metadata = self._brokers.metadata.topics.get(name)
            for index, each in (metadata.partitions if metadata is not None else {}).items():
                found[Place(name, index)] = each.leader if each.leader >= 0 else None
        return found

    def look(self) -> None:
        """The metadata is new: topics may have become known, or may have grown."""
        for topic in tuple(self.known.values()):
            metadata = self._brokers.metadata.topics.get(topic.name)
            if metadata is not None and metadata.partitions and (self.pin_by is None or topic.partitions):
                if topic.topic_id not in (None, metadata.topic_id) and len(metadata.partitions) < len(topic.partitions):
                    self._shrink(topic, len(metadata.partitions))
                topic.topic_id = metadata.topic_id or topic.topic_id
                self._adopt(topic, len(metadata.partitions))

    def expire(self, now_s: float) -> float | None:
        """Give up what was held for too long; when that is due again."""
        due_s: float | None = None
        timeout_s = self._settings.delivery_timeout_ms / 1000
        for name in tuple(self.tasks):
            topic = self.known.get(name)
            if topic is None or not topic.held or not timeout_s:
                continue
            with topic.lock:
                late = []
                while topic.held and topic.held[0].since_s + timeout_s <= now_s:
                    late.append(topic.held.popleft())
                if topic.held:
                    oldest_s = topic.held[0].since_s + timeout_s
                    due_s = oldest_s if due_s is None else min(due_s, oldest_s)
            if late:
                self._fail(topic, late, self._repeats.late())
        return due_s

    async def close(self) -> None:
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def give_up(self, error: KafkaError) -> None:
        """Fail all records that are held: nothing of them will be sent."""
        for topic in tuple(self.known.values()):
            self._refuse(topic, error, is_closed=False)

    async def make_known(self, topic: Topic) -> None:
        try:
            await ask(lambda: self._learn(topic), self._patience)
        except KafkaException as refused:
            self._refuse(topic, refused.error, is_closed=True)

    async def _learn(self, topic: Topic) -> None:
        """Raises while it is unknown: NoAnswer where that will not change."""
        if topic.partitions:
            return
        why: KafkaException | None = None
        try:
            metadata = (await self._brokers.refresh((topic.name,))).topics.get(topic.name)
            self._repeats.answered()
            error = self._error(topic, metadata)
            why = None if error is None else NoAnswer(error)
            if self.pin_by is not None and metadata is not None and metadata.partitions:
                await self.pin_by(topic.name)
        except KafkaException as failure:
            why = why if failure.error.retriable() else NoAnswer(failure.error)
            self._repeats.tell(failure.error)
        self.look()
        if not topic.partitions:
            raise why or exception_of(KafkaError.LEADER_NOT_AVAILABLE, f"topic {topic.name}")

    def _error(self, topic: Topic, metadata: "TopicMetadata | None") -> KafkaError | None:
        """The reason why records for it can never be sent, if there is one. A new topic is unknown for a while."""
        code = Code.UNKNOWN_TOPIC_OR_PART if metadata is None else metadata.error_code
        waited_ms = (monotonic_s() - topic.opened_s) * 1000
        if code == Code.UNKNOWN_TOPIC_OR_PART:
            is_patient = waited_ms < self._settings.topic_metadata_propagation_max_ms
            return None if is_patient else KafkaError(KafkaError._UNKNOWN_TOPIC)
        return None if code == 0 or is_retriable(code) else error_of(code)

    def partition(self, place: Place) -> Unbatched | None:
        topic = self.known.get(place.topic)
        return None if topic is None or place.partition >= len(topic.partitions) else topic.partitions[place.partition]

    def is_empty(self, name: str) -> bool:
        """Whether nothing is held for a topic that is not known."""
        topic = self.known.get(name)
        return topic is None or not topic.held

    def pin(self, name: str, count: int, prepare: Callable[[Topic, Sequence[Unbatched]], None]) -> None:
        topic = self.open(name)
        for each in tuple(self.known.values()):
            # From here on every record is asked whether it may be produced, and where it goes.
            each.hash, each.sticky_until_s = None, NEVER_S
        with topic.lock:
            partitions = tuple(topic.partitions[:count])
            partitions += tuple(self._new(name, index) for index in range(len(partitions), count))
            prepare(topic, partitions)
            unknown = self._fill(topic, partitions)
        if unknown:
            self._fail(topic, unknown, KafkaError(KafkaError._UNKNOWN_PARTITION))

    def _shrink(self, topic: Topic, count: int) -> None:
        """Another topic of this name has fewer partitions. That of the same topic metadata tells fewer means only that
        a broker lags behind."""
        if topic.is_pinned:
            return
        gone = topic.partitions[count:]
        with topic.lock:
            topic.partitions = topic.partitions[:count]
            if topic.sticky.partition >= count:
                topic.sticky_until_s = NEVER_S
        self._gone(gone)

    def _adopt(self, topic: Topic, count: int) -> None:
        have = len(topic.partitions)
        if have >= count or topic.is_pinned:
            return
        partitions = (*topic.partitions, *(self._new(topic.name, index) for index in range(have, count)))
        with topic.lock:
            unknown = self._fill(topic, partitions)
            topic.hash = self._hash
        if unknown:
            self._fail(topic, unknown, KafkaError(KafkaError._UNKNOWN_PARTITION))

    def _new(self, name: str, index: int) -> Unbatched:
        return Unbatched(name, index, self._settings.batch_num_messages)

    def _fill(self, topic: Topic, partitions: Sequence[Unbatched]) -> list[Held]:
        """Put what was held where it belongs; the answer is what belongs nowhere."""
        unknown: list[Held] = []
        for each in topic.held:
            if each.partition < len(partitions):
                self._place(topic, partitions, each)
            else:
                unknown.append(each)
        topic.held.clear()
        # The last step: producing threads find no partitions until then, and wait for the lock.
        topic.partitions = partitions
        return unknown

    def _refuse(self, topic: Topic, error: KafkaError, *, is_closed: bool) -> None:
        with topic.lock:
            held, topic.held = list(topic.held), type(topic.held)()
            if is_closed:
                # The next record finds the topic unknown again, and asks anew.
                topic.error = error
                self.known.pop(topic.name, None)
        if held:
            self._fail(topic, held, error)
