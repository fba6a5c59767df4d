"""The operations of a consumer, one coroutine for each method of either face.

They run on the loop while the application waits for them, so they may touch its side (`delivery`) too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import NamedTuple

from oncelog.arguments import as_whole, check_kind
from oncelog.client.consumer import arguments
from oncelog.client.consumer.chunk_readers import Position
from oncelog.client.consumer.cluster_metadata import ClusterMetadata, cluster_metadata
from oncelog.client.consumer.core import PATIENCE_MS, Core
from oncelog.client.consumer.delivery import Delivery
from oncelog.client.consumer.subscription import Callbacks, Subscription
from oncelog.client.errors import KafkaError, KafkaException, error_of, invalid_argument
from oncelog.client.fetching.values import EARLIEST, LATEST
from oncelog.client.groups.commits import ToCommit
from oncelog.client.groups.commits import topic_partitions as committed_offsets
from oncelog.client.properties import ConsumerSettings
from oncelog.client.saving.committing import Committers, HasSaving
from oncelog.client.statistics import consuming
from oncelog.client.types import OFFSET_END, OFFSET_INVALID, TopicPartition
from oncelog.slots import AnyPlace


class ConsumerGroupMetadata(NamedTuple):
    """This consumer's membership in its group."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Operations:
    """Made on the loop that it is to run on."""

    def __init__(
        self,
        settings: ConsumerSettings,
        notify: Callable[[], None],
        wake: Callable[[Callable[[], None]], object],
    ) -> None:
        self.settings = settings
        self.core = Core(settings, self._read, notify, wake)
        consuming.count(self.core)
        engine = self.core.engine
        self.is_waiting = False  # whether the application waits for records now
        self.has_left = False
        self._subscription: Subscription | None = None
        self._committers = Committers(self.core.brokers)
        self.delivery = Delivery(engine.next_event, engine.taken, engine.damaged, check_crcs=settings.check_crcs)

    def _read(self, *, is_explicit: bool) -> Mapping[AnyPlace, Position]:
        return self.delivery.handed() if is_explicit else self.delivery.done()

    async def start(self) -> None:
        await self.core.start()

    @property
    def has_something(self) -> bool:
        """Whether there is something for the application: calls, or what was fetched."""
        return bool(self.core.calls) or self.core.engine.has_events

    def activity(self) -> object:
        """None while the application waits for records, else what changes when it takes some."""
        return None if self.is_waiting else self.delivery.activity()

    # --- the group

    async def subscribe(self, topics: object, callbacks: Callbacks) -> None:
        names = arguments.topics(topics)
        self.core.group_id()
        if self._subscription is None:
            if self.core.engine.fetcher.cursors:
                await self.assign([])
            self._subscription = Subscription(self.core, self)
            self.core.group = self._subscription.group
        await self._subscription.subscribe(names, callbacks)

    async def unsubscribe(self) -> None:
        if self._subscription is not None:
            await self._subscription.subscribe((), self._subscription.callbacks)

    def subscription(self) -> list[str]:
        return [] if self._subscription is None else self._subscription.topics

    def begin_leaving(self, notify: Callable[[], None]) -> None:
        """Leave the group while the application still serves its callbacks; `has_left` says when that is done.
        On the loop."""

        async def leave() -> None:
            try:
                if self._subscription is not None:
                    await self._subscription.leave()
            finally:
                self.has_left = True
                notify()

        self.core.tasks.begin(leave())

    async def release(self, partitions: Iterable[AnyPlace]) -> None:
        gone = list(partitions)
        for partition in gone:
            self.delivery.forget(partition)
        await self.core.unassign(gone)

    async def close(self) -> None:
        """Commit what was handed out, where that needs no call, and let go of everything."""
        try:
            await self.commit_what_was_read()
        finally:
            for partition in list(self.core.engine.fetcher.cursors):
                self.delivery.forget(partition)
            try:
                await self._committers.close()
            finally:
                await self.core.close()

    async def commit_what_was_read(self, partitions: Iterable[AnyPlace] | None = None) -> None:
        """The consumer commits by itself before partitions are given away. A failure is told to `on_commit` alone:
        records come again."""
        if not (self.settings.group_id and self.settings.enable_auto_commit):
            return
        wanted = self.core.to_commit(is_explicit=True)
        if partitions is not None:
            given_away = set(partitions)
            wanted = {each: offset for each, offset in wanted.items() if each in given_away}
        await self.core.commit_in_background(wanted)

    # --- what is read

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*partition) for partition in sorted(self.core.engine.fetcher.cursors)]

    async def assign(self, partitions: object) -> None:
        places = [arguments.place_of(each) for each in arguments.topic_partitions(partitions)]
        await self.commit_what_was_read()
        for partition in list(self.core.engine.fetcher.cursors):
            self.delivery.forget(partition)
        await self.core.assign(places)
        for place in places:
            self.delivery.begin(*place)

    async def incremental_assign(self, partitions: object) -> None:
        places = [arguments.place_of(each) for each in arguments.topic_partitions(partitions)]
        for partition, _, _ in places:
            if partition in self.core.engine.fetcher.cursors:
                raise KafkaException(KafkaError(KafkaError._CONFLICT, f"{_name(partition)} is assigned already"))
        await self.core.assign_more(places)
        for place in places:
            self.delivery.begin(*place)

    async def incremental_unassign(self, partitions: object) -> None:
        gone = [self._assigned(each) for each in arguments.topic_partitions(partitions)]
        await self.commit_what_was_read(gone)
        await self.release(gone)

    @contextmanager
    def collecting(self, collected: Sized) -> Iterator[None]:
        """All of it reaches the application, or none: where a signal, or who gives up waiting, ends this half-way, the
        records come again."""
        self.delivery.begin_bulk()
        try:
            yield
        except BaseException:
            if collected:
                self.core.engine.go_back(self.delivery.take_back())
            raise

    async def seek(self, partition: object) -> None:
        place = arguments.place_of(arguments.topic_partition(partition))
        self._assigned(arguments.topic_partition(partition))
        await self.core.seek(*place)
        self.delivery.begin(*place)

    async def pause(self, partitions: object) -> None:
        paused = [self._assigned(each) for each in arguments.topic_partitions(partitions)]
        places = [(each, self.delivery.position(each)) for each in paused]
        for partition in paused:
            self.delivery.hold(partition)
        await self.core.pause(places)

    async def resume(self, partitions: object) -> None:
        await self.core.resume([self._assigned(each) for each in arguments.topic_partitions(partitions)])

    def position(self, partitions: object) -> list[TopicPartition]:
        found = []
        for each in arguments.topic_partitions(partitions):
            position = self.delivery.position(arguments.partition_of(each))
            offset, epoch = position if position is not None else (OFFSET_INVALID, -1)
            found.append(TopicPartition(each.topic, each.partition, offset, leader_epoch=epoch))
        return found

    def _assigned(self, given: TopicPartition) -> AnyPlace:
        partition = arguments.partition_of(given)
        if partition not in self.core.engine.fetcher.cursors:
            raise KafkaException(KafkaError(KafkaError._STATE, f"{_name(partition)} is not assigned to this consumer"))
        return partition

    # --- committed offsets

    async def commit_any(
        self, message: object, offsets: object, *, is_later: bool, producer: HasSaving | None
    ) -> list[TopicPartition] | None:
        """The common part of the faces' `commit`."""
        if producer is not None:
            return await self.commit_with(producer, message, offsets)
        if is_later:
            self.core.tasks.begin(self.core.commit_in_background(self.wanted(message, offsets)))
            return None
        return await self.commit(message, offsets)

    async def commit(self, message: object = None, offsets: object = None) -> list[TopicPartition]:
        wanted = self.wanted(message, offsets)
        codes = await self.core.commit(wanted)
        failed = {code for code in codes.values() if code}
        if failed and len(codes) == 1:
            raise KafkaException(error_of(failed.pop()))
        return committed_offsets(wanted, codes)

    def wanted(self, message: object, offsets: object) -> dict[AnyPlace, ToCommit]:
        self.core.group_id()
        return self._named(message, offsets, lambda: self.core.to_commit(is_explicit=True))

    def _named(
        self, message: object, offsets: object, otherwise: Callable[[], dict[AnyPlace, ToCommit]]
    ) -> dict[AnyPlace, ToCommit]:
        """The offsets that a commit names; raises where there are none."""
        wanted = arguments.to_commit(message, offsets)
        if wanted is None:
            wanted = otherwise()
        if not wanted:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET, "Local: No offset stored"))
        return wanted

    async def commit_with(self, producer: HasSaving, message: object, offsets: object) -> list[TopicPartition]:
        """Positions and the producer's state in one commit."""
        check_kind("producer", producer, HasSaving, "the Producer that is to be saved with these offsets")
        group_id = self.core.group_id()
        if self.subscription() or self.settings.enable_auto_commit:
            why = "subscribed" if self.subscription() else "committing by itself (`enable.auto.commit`)"
            words = (
                f"this consumer is {why}: a producer is saved in a group of its own, by one consumer that was given "
                "its partitions with assign() and commits nothing else"
            )
            raise KafkaException(KafkaError(KafkaError._STATE, words))
        handed = {each: ToCommit(*position) for each, position in self.delivery.handed().items()}
        positions = committed_offsets(self._named(message, offsets, lambda: handed), {})
        limit_bytes = self.settings.oncelog_offset_metadata_max_bytes
        await self._committers.commit(group_id, positions, producer, limit_bytes=limit_bytes)
        return positions

    async def store_offsets(self, message: object = None, offsets: object = None) -> None:
        if self.settings.enable_auto_offset_store:
            raise invalid_argument("store_offsets() needs `enable.auto.offset.store=false`")
        wanted = arguments.to_commit(message, offsets)
        if not wanted:
            raise ValueError("a message or offsets must be given")
        for partition in wanted:
            self._assigned(TopicPartition(*partition))
        self.core.stored.update(wanted)

    async def committed(self, partitions: object, timeout_s: float | None = None) -> list[TopicPartition]:
        asked = arguments.topic_partitions(partitions)
        found = await self.core.committed([arguments.partition_of(each) for each in asked], _patience_ms(timeout_s))
        answers = []
        for each in asked:
            code, offset, epoch, metadata = found.get(arguments.partition_of(each), (0, -1, -1, None))
            error = error_of(code) if code else None
            offset = offset if offset >= 0 else OFFSET_INVALID
            answers.append(TopicPartition(each.topic, each.partition, offset, metadata or None, epoch, error=error))
        return answers

    # --- what the cluster says

    async def offsets_for_times(self, partitions: object, timeout_s: float | None = None) -> list[TopicPartition]:
        asked = arguments.topic_partitions(partitions)
        times: dict[AnyPlace, int] = {}
        for each in asked:
            time_ms = as_whole(each.offset)
            if time_ms is None:
                raise TypeError(f"a timestamp in milliseconds is expected as the offset, not {each.offset!r}")
            times[arguments.partition_of(each)] = time_ms
        found = await self.core.offsets_at(times, _patience_ms(timeout_s))
        answers = []
        for each in asked:
            at = found[arguments.partition_of(each)]
            offset = at.offset if at.offset >= 0 else OFFSET_END
            answers.append(TopicPartition(each.topic, each.partition, offset, leader_epoch=at.leader_epoch))
        return answers

    async def get_watermark_offsets(
        self, partition: object, timeout_s: float | None = None, *, cached: bool = False
    ) -> tuple[int, int] | None:
        each = arguments.partition_of(arguments.topic_partition(partition))
        if cached:
            place = self.core.engine.fetcher.cursors.get(each)
            if place is None or place.high_watermark < 0:
                return None
            return place.log_start_offset, place.high_watermark
        patience_ms = _patience_ms(timeout_s)
        low = await self.core.offsets_at({each: EARLIEST}, patience_ms)
        high = await self.core.offsets_at({each: LATEST}, patience_ms)
        return low[each].offset, high[each].offset

    async def list_topics(self, topic: str | None = None) -> ClusterMetadata:
        if topic is not None and not isinstance(topic, str):
            raise TypeError(f"a topic is a str, not {type(topic).__name__}")
        return cluster_metadata(await self.core.brokers.refresh(None if topic is None else (topic,)), topic)

    def group_metadata(self) -> ConsumerGroupMetadata:
        member = self.core.member
        return ConsumerGroupMetadata(self.core.group_id(), member.generation, member.member_id, member.instance_id)


def _patience_ms(timeout_s: float | None) -> int:
    return PATIENCE_MS if timeout_s is None else int(timeout_s * 1000)


def _name(partition: AnyPlace) -> str:
    return f"{partition[0]} [{partition[1]}]"
