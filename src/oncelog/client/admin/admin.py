"""`Admin`: questions about a cluster, and changes to it; shaped as confluent-kafka's AdminClient.

A method that takes many things returns a future for each, because each may fail by itself; `result()` waits.
"""

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from oncelog.arguments import check_kind, whole_number
from oncelog.client.admin import acls, arguments, cluster, configs, groups, quotas, scram, topics
from oncelog.client.admin.acl_values import AclBinding, AclBindingFilter
from oncelog.client.admin.scram import UserScramCredentialAlteration, UserScramCredentialsDescription
from oncelog.client.admin.timeouts import Timeouts
from oncelog.client.admin.values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    DeletedRecords,
    FoundOffset,
    GroupDescription,
    GroupListing,
    GroupOffsets,
    Move,
    PartitionLeases,
    ProducerState,
    QuotaEntity,
    Replicas,
)
from oncelog.client.consumer.arguments import topic_partition
from oncelog.client.consumer.cluster_metadata import ClusterMetadata, cluster_metadata
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.properties import admin_settings
from oncelog.client.types import NewPartitions, NewTopic, TopicPartition
from oncelog.slots import AnyPlace, Place

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)

LIST_TIMEOUT_S = 60.0


class Admin:
    """An administrator of a cluster, made from librdkafka's properties. It connects at the first question."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        self._settings = admin_settings(properties)
        self._thread = LoopThread("oncelog-admin")
        try:
            self._brokers: Brokers = self._thread.run(self._start())
        except BaseException:
            self._thread.stop()
            raise
        self._is_closed = False
        # An admin that was forgotten does not leave its thread behind.
        self._finalizer = weakref.finalize(self, self._thread.stop)
        self._finalizer.atexit = False

    async def _start(self) -> Brokers:
        brokers = Brokers(self._settings)
        await brokers.start()
        return brokers

    def close(self) -> None:
        """Futures that are not done yet fail; the second time nothing happens."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread.is_forked:
            return
        try:
            self._thread.run(self._brokers.close())
        finally:
            self._finalizer()

    def __enter__(self) -> "Admin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the cluster

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Brokers, topics and partitions as they are now."""
        name = None if topic is None else arguments.text("a topic", topic)

        async def ask() -> ClusterMetadata:
            return cluster_metadata(await self._brokers.refresh(None if name is None else [name]), name)

        return self._wait(ask(), timeout)

    def describe_cluster(
        self, *, include_fenced: bool = True, request_timeout: float = -1
    ) -> "Future[ClusterDescription]":
        """The cluster's brokers; also those that are down, where the cluster knows them, unless `include_fenced` is
        False."""
        timeouts = self._timeouts(request_timeout)
        return self._future(partial(cluster.describe_cluster, self._brokers, timeouts, include_fenced=include_fenced))

    def describe_replicas(self, *, request_timeout: float = -1) -> "Future[dict[Place, Replicas]]":
        """The replicas of each partition: the brokers that have it, its leader, and those in sync."""
        return self._future(partial(cluster.describe_replicas, self._brokers, self._timeouts(request_timeout)))

    def log_ends(
        self, replicas: Sequence[tuple[int, str, int]], *, request_timeout: float = -1
    ) -> "Future[dict[tuple[int, str, int], int]]":
        """The end offset of each replica's log (broker, topic, partition), whether replicated or not. A broker that
        does not answer is left out."""
        timeouts = self._timeouts(request_timeout)
        return self._future(partial(cluster.log_ends, self._brokers, list(replicas), timeouts))

    def elect_leaders(
        self, partitions: Sequence[TopicPartition], *, request_timeout: float = -1, operation_timeout: float = 0
    ) -> dict[TopicPartition, "Future[bool]"]:
        """Let preferred leaders lead again; False for partitions where they do already."""
        return self._by_partition(partitions, cluster.elect_leaders, request_timeout, operation_timeout)

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, request_timeout: float = -1
    ) -> dict[TopicPartition, "Future[None]"]:
        """Move partitions to these brokers, the preferred leader first; None takes a move back. New replicas are copied
        after the answer: `list_partition_reassignments` has the moves that are not over."""
        check_kind("targets", targets, Mapping, "a mapping of TopicPartition to lists of brokers")
        by_place = {(each.topic, each.partition): target for each, target in targets.items()}

        async def ask(brokers: Brokers, wanted: Mapping[AnyPlace, int], timeouts: Timeouts) -> dict[AnyPlace, Any]:
            return await cluster.alter_partition_reassignments(brokers, by_place, timeouts)

        return self._by_partition(list(targets), ask, request_timeout)

    def list_partition_reassignments(self, *, request_timeout: float = -1) -> "Future[dict[Place, Move]]":
        """Partitions that are on their way to other brokers."""
        return self._future(
            partial(cluster.list_partition_reassignments, self._brokers, self._timeouts(request_timeout))
        )

    def unregister_broker(self, node_id: int, *, request_timeout: float = -1) -> "Future[None]":
        """Remove a broker from the cluster that is down and has no replicas."""
        timeouts = self._timeouts(request_timeout)
        return self._future(partial(cluster.unregister_broker, self._brokers, node_id, timeouts))

    # --- topics

    def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        *,
        operation_timeout: float = 0,
        request_timeout: float = -1,
        validate_only: bool = False,
    ) -> dict[str, "Future[None]"]:
        wanted = arguments.all_of(NewTopic, "new_topics", new_topics, lambda each: each.topic)
        for each in wanted:
            arguments.check_new_topic(each)
        timeouts = self._timeouts(request_timeout, operation_timeout)
        return self._futures(
            [each.topic for each in wanted],
            partial(topics.create_topics, self._brokers, wanted, timeouts, validate_only=validate_only),
        )

    def delete_topics(
        self, topic_names: Sequence[str], *, operation_timeout: float = 0, request_timeout: float = -1
    ) -> dict[str, "Future[None]"]:
        names = arguments.texts("topics", topic_names)
        timeouts = self._timeouts(request_timeout, operation_timeout)
        return self._futures(names, partial(topics.delete_topics, self._brokers, names, timeouts))

    def create_partitions(
        self,
        new_partitions: Sequence[NewPartitions],
        *,
        operation_timeout: float = 0,
        request_timeout: float = -1,
        validate_only: bool = False,
    ) -> dict[str, "Future[None]"]:
        wanted = arguments.all_of(NewPartitions, "new_partitions", new_partitions, lambda each: each.topic)
        for each in wanted:
            arguments.check_new_partitions(each)
        timeouts = self._timeouts(request_timeout, operation_timeout)
        return self._futures(
            [each.topic for each in wanted],
            partial(topics.create_partitions, self._brokers, wanted, timeouts, validate_only=validate_only),
        )

    def delete_records(
        self, offsets: Sequence[TopicPartition], *, operation_timeout: float = 0, request_timeout: float = -1
    ) -> dict[TopicPartition, "Future[DeletedRecords]"]:
        """Delete all records before these offsets; OFFSET_END stands for the end of the log."""
        return self._by_partition(offsets, topics.delete_records, request_timeout, operation_timeout)

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, request_timeout: float = -1
    ) -> dict[TopicPartition, "Future[FoundOffset]"]:
        """First offsets at or after these times in milliseconds; -1 the end, -2 the beginning, -3 the latest time."""
        check_kind("timestamps", timestamps, Mapping, "a mapping of TopicPartition to milliseconds")
        places = [TopicPartition(each.topic, each.partition, at) for each, at in timestamps.items()]
        return self._by_partition(places, topics.list_offsets, request_timeout)

    def describe_producers(
        self, partitions: Sequence[TopicPartition], *, request_timeout: float = -1
    ) -> dict[TopicPartition, "Future[list[ProducerState]]"]:
        """The producers that each partition's leader remembers."""
        return self._by_partition(partitions, topics.describe_producers, request_timeout)

    def describe_leases(
        self, partitions: Sequence[TopicPartition], *, request_timeout: float = -1
    ) -> dict[TopicPartition, "Future[PartitionLeases]"]:
        """The producers as in `describe_producers`, with last offsets, the time left of leases, and the room for them.
        Only oncelog can answer; elsewhere it fails with `_UNSUPPORTED_FEATURE`."""
        return self._by_partition(partitions, topics.describe_leases, request_timeout)

    # --- configurations

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float = -1
    ) -> dict[ConfigResource, "Future[dict[str, ConfigEntry]]"]:
        wanted = arguments.all_of(ConfigResource, "resources", resources, lambda each: each)
        timeouts = self._timeouts(request_timeout)
        return self._futures(wanted, partial(configs.describe_configs, self._brokers, wanted, timeouts))

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float = -1, validate_only: bool = False
    ) -> dict[ConfigResource, "Future[None]"]:
        wanted = arguments.all_of(ConfigResource, "resources", resources, lambda each: each)
        timeouts = self._timeouts(request_timeout)
        return self._futures(
            wanted,
            partial(configs.incremental_alter_configs, self._brokers, wanted, timeouts, validate_only=validate_only),
        )

    # --- quotas

    def describe_client_quotas(
        self,
        names: Mapping[str, str | quotas.Name | None] | None = None,
        *,
        strict: bool = False,
        request_timeout: float = -1,
    ) -> "Future[dict[QuotaEntity, dict[str, float]]]":
        """The quotas of entities with these names, by "user", "client-id" and "ip"; None is the default quota,
        `ANY_NAME` any quota. `strict`: only of those that have no other names."""
        timeouts = self._timeouts(request_timeout)
        ask = partial(quotas.describe_client_quotas, self._brokers, dict(names or {}), timeouts, is_strict=strict)
        return self._future(ask)

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        request_timeout: float = -1,
        validate_only: bool = False,
    ) -> dict[QuotaEntity, "Future[None]"]:
        """Change quotas. A quota that is not named stays; None removes one."""
        check_kind("changes", changes, Mapping, "a mapping of QuotaEntity to its quotas")
        wanted = arguments.all_of(QuotaEntity, "changes", list(changes), lambda each: each)
        timeouts = self._timeouts(request_timeout)
        ask = partial(quotas.alter_client_quotas, self._brokers, changes, timeouts, validate_only=validate_only)
        return self._futures(wanted, ask)

    # --- groups

    def list_consumer_groups(
        self, *, states: Sequence[str] = (), request_timeout: float = -1
    ) -> "Future[list[GroupListing]]":
        """The groups of all brokers. Fails where one of the brokers could not be asked: its groups would be missing."""

        async def ask() -> list[GroupListing]:
            found, failures = await groups.list_groups(self._brokers, self._timeouts(request_timeout), states)
            if failures:
                raise failures[0]
            return found

        return self._future(ask)

    def describe_consumer_groups(
        self, group_ids: Sequence[str], *, request_timeout: float = -1
    ) -> dict[str, "Future[GroupDescription]"]:
        names = arguments.texts("groups", group_ids)
        timeouts = self._timeouts(request_timeout)
        return self._futures(names, partial(groups.describe_groups, self._brokers, names, timeouts))

    def delete_consumer_groups(
        self, group_ids: Sequence[str], *, request_timeout: float = -1
    ) -> dict[str, "Future[None]"]:
        names = arguments.texts("groups", group_ids)
        timeouts = self._timeouts(request_timeout)
        return self._futures(names, partial(groups.delete_groups, self._brokers, names, timeouts))

    def list_consumer_group_offsets(
        self, wanted: Sequence[GroupOffsets], *, request_timeout: float = -1
    ) -> dict[str, "Future[GroupOffsets]"]:
        return self._by_group(wanted, groups.group_offsets, request_timeout)

    def alter_consumer_group_offsets(
        self, wanted: Sequence[GroupOffsets], *, request_timeout: float = -1
    ) -> dict[str, "Future[GroupOffsets]"]:
        return self._by_group(wanted, groups.alter_group_offsets, request_timeout)

    def delete_consumer_group_offsets(
        self, wanted: Sequence[GroupOffsets], *, request_timeout: float = -1
    ) -> dict[str, "Future[GroupOffsets]"]:
        return self._by_group(wanted, groups.delete_group_offsets, request_timeout)

    # --- users

    def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None, *, request_timeout: float = -1
    ) -> "Future[dict[str, UserScramCredentialsDescription]] | dict[str, Future[UserScramCredentialsDescription]]":
        """The mechanisms of users: a future for each, or one for all where none is named."""
        timeouts = self._timeouts(request_timeout)
        if users is None:
            return self._future(partial(scram.describe, self._brokers, None, timeouts))
        names = arguments.texts("users", users)
        return self._futures(names, partial(scram.describe, self._brokers, names, timeouts))

    def alter_user_scram_credentials(
        self, alterations: Sequence[UserScramCredentialAlteration], *, request_timeout: float = -1
    ) -> dict[str, "Future[None]"]:
        """Make users, give them another password, or remove them. Kafka takes each user only once in a request."""
        wanted = arguments.all_of(UserScramCredentialAlteration, "alterations", alterations, lambda each: each)
        names = arguments.texts("users", list(dict.fromkeys(each.user for each in wanted)))
        timeouts = self._timeouts(request_timeout)
        return self._futures(names, partial(scram.alter, self._brokers, wanted, timeouts))

    # --- access rules

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float = -1
    ) -> "Future[list[AclBinding]]":
        """The rules that match. Fails with `SECURITY_DISABLED` where nobody is asked for rights."""
        return self._future(
            partial(acls.describe_acls, self._brokers, acl_binding_filter, self._timeouts(request_timeout))
        )

    def create_acls(
        self, bindings: Sequence[AclBinding], *, request_timeout: float = -1
    ) -> dict[AclBinding, "Future[None]"]:
        """Make access rules. They count from then on; one that is there already is no failure."""
        wanted = arguments.all_of(AclBinding, "acls", bindings, lambda each: each)
        timeouts = self._timeouts(request_timeout)
        return self._futures(wanted, partial(acls.create_acls, self._brokers, wanted, timeouts))

    def delete_acls(
        self, acl_binding_filters: Sequence[AclBindingFilter], *, request_timeout: float = -1
    ) -> dict[AclBindingFilter, "Future[list[AclBinding]]"]:
        """Remove the rules that match, and return them."""
        wanted = arguments.all_of(AclBindingFilter, "acl_binding_filters", acl_binding_filters, lambda each: each)
        timeouts = self._timeouts(request_timeout)
        return self._futures(wanted, partial(acls.delete_acls, self._brokers, wanted, timeouts))

    # --- futures

    def _timeouts(self, request_timeout_s: float, operation_timeout_s: float = 0) -> Timeouts:
        request = arguments.seconds("request_timeout", request_timeout_s)
        operation = arguments.seconds("operation_timeout", operation_timeout_s)
        request_ms = int(request * 1000) if request >= 0 else self._settings.socket_timeout_ms
        return Timeouts(request_ms, max(0, int(operation * 1000)))

    def _wait(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        limit_s = LIST_TIMEOUT_S if timeout_s is None or timeout_s < 0 else timeout_s
        try:
            return self._thread.run(coroutine, limit_s)
        except TimeoutError:
            words = f"no answer in {limit_s:g} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True)) from None

    def _future(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        self._refuse_if_closed()

        async def answer() -> T:
            try:
                return await ask()
            except asyncio.CancelledError:
                raise _closed_meanwhile() from None

        return asyncio.run_coroutine_threadsafe(answer(), self._thread.loop)

    def _futures(
        self, keys: Sequence[Key], ask: Callable[[], Coroutine[Any, Any, dict[Key, Any]]]
    ) -> dict[Key, "Future[Any]"]:
        self._refuse_if_closed()
        futures: dict[Key, Future[Any]] = {key: Future() for key in keys}
        for each in futures.values():
            each.set_running_or_notify_cancel()

        async def answer() -> None:
            try:
                outcomes = await ask()
            except KafkaException as failure:
                outcomes = dict.fromkeys(futures, failure)
            except asyncio.CancelledError:
                outcomes = dict.fromkeys(futures, _closed_meanwhile())
            except BaseException as failure:
                _fail_all(futures.values(), failure)
                raise
            for key, future in futures.items():
                _set(future, outcomes.get(key, _no_answer(key)))

        asyncio.run_coroutine_threadsafe(answer(), self._thread.loop)
        return futures

    def _by_partition(
        self,
        given: Sequence[TopicPartition],
        ask: Callable[[Brokers, Mapping[AnyPlace, int], Timeouts], Coroutine[Any, Any, dict[AnyPlace, Any]]],
        request_timeout_s: float,
        operation_timeout_s: float = 0,
    ) -> dict[TopicPartition, "Future[Any]"]:
        wanted = arguments.all_of(TopicPartition, "partitions", given, lambda each: each)
        numbers: dict[AnyPlace, int] = {}
        for each in wanted:
            topic_partition(each)
            what = f"the offset or time of {each.topic}-{each.partition}"
            numbers[each.topic, each.partition] = whole_number(what, each.offset, "a whole number")
        by_place = {(each.topic, each.partition): each for each in wanted}
        timeouts = self._timeouts(request_timeout_s, operation_timeout_s)

        async def answer() -> dict[TopicPartition, Any]:
            found = await ask(self._brokers, numbers, timeouts)
            return {by_place[place]: outcome for place, outcome in found.items()}

        return self._futures(wanted, answer)

    def _by_group(
        self,
        given: Sequence[GroupOffsets],
        ask: Callable[[Brokers, GroupOffsets, Timeouts], Coroutine[Any, Any, GroupOffsets]],
        request_timeout_s: float,
    ) -> dict[str, "Future[GroupOffsets]"]:
        wanted = arguments.all_of(GroupOffsets, "groups", given, lambda each: each.group_id)
        timeouts = self._timeouts(request_timeout_s)
        return {each.group_id: self._future(partial(ask, self._brokers, each, timeouts)) for each in wanted}

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise KafkaException(KafkaError(KafkaError._STATE, "the admin is closed"))


def _set(future: "Future[Any]", outcome: object) -> None:
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _fail_all(futures: Any, failure: BaseException) -> None:
    for future in futures:
        future.set_exception(failure)


def _closed_meanwhile() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._DESTROY, "the admin was closed meanwhile"))


def _no_answer(key: object) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._BAD_MSG, f"the broker's answer says nothing of {key}"))
