"""Topics: what can be made and what is refused, taking turns, and deleting."""

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from shutil import copytree

import pytest

from oncelog.log.disk import RealDisk
from oncelog.log.errors import LogStorageError
from oncelog.log.work_steps import Steps, at_once
from oncelog.server.config_resources import describe_configs
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.settings import Settings
from oncelog.server.topic_configs import TOPIC_CONFIGS, log_config
from oncelog.server.topics import Topics
from tests.server.topics_support import EVERY_TURN_IS_OVER, NOW, append, delete_at_once, grow_to, open_topics, refusal


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return open_topics(tmp_path)


# Names, counts, configs


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_legal_names_are_taken(topics: Topics, name: str) -> None:
    assert topics.create(name, 1, {}, NOW).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0", "../etc"])
def test_illegal_names_are_refused(topics: Topics, name: str) -> None:
    assert refusal(lambda: topics.create(name, 1, {}, NOW)) is ErrorCode.invalid_topic_exception


def test_names_that_metrics_cannot_tell_apart_are_refused(topics: Topics) -> None:
    topics.create("a.b", 1, {}, NOW)
    assert refusal(lambda: topics.create("a_b", 1, {}, NOW)) is ErrorCode.invalid_topic_exception
    assert refusal(lambda: topics.create("a.b", 1, {}, NOW)) is ErrorCode.topic_already_exists


def test_a_name_is_free_again_after_its_topic_is_deleted(topics: Topics) -> None:
    first = topics.create("a.b", 1, {}, NOW)
    append(first.partitions[0])
    delete_at_once(topics, first)
    second = topics.create("a_b", 1, {}, NOW)
    delete_at_once(topics, second)
    third = topics.create("a.b", 1, {}, NOW)
    assert third.id != first.id
    assert third.partitions[0].log.next_offset == 0


@pytest.mark.parametrize("count", [0, -2, 1_000_000, 2**31 - 1])
def test_counts_that_cannot_be_are_refused_and_leave_nothing(topics: Topics, tmp_path: Path, count: int) -> None:
    before = sorted(tmp_path.iterdir())
    assert refusal(lambda: topics.create("a", count, {}, NOW)) is ErrorCode.invalid_partitions
    assert sorted(tmp_path.iterdir()) == before


def test_all_partitions_together_are_bounded(tmp_path: Path) -> None:
    topics = open_topics(tmp_path, oncelog_max_partitions=3)
    topic = topics.create("a", 2, {}, NOW)
    assert refusal(lambda: topics.create("b", 2, {}, NOW)) is ErrorCode.invalid_partitions
    assert refusal(lambda: grow_to(topics, topic, 4)) is ErrorCode.invalid_partitions
    grow_to(topics, topic, 3)
    delete_at_once(topics, topic)
    topics.create("b", 3, {}, NOW)


@pytest.mark.parametrize("count", [0, 1, 2, -5])
def test_a_topic_only_grows(topics: Topics, count: int) -> None:
    topic = topics.create("a", 2, {}, NOW)
    assert refusal(lambda: grow_to(topics, topic, count)) is ErrorCode.invalid_partitions


def test_minus_one_means_the_default_count(tmp_path: Path) -> None:
    assert len(open_topics(tmp_path, num_partitions=3).create("a", -1, {}, NOW).partitions) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", None),
        ("retention.ms", str(2**63)),
        ("retnetion.ms", "1"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "compact,"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("min.insync.replicas", "0"),
        ("flush.messages", "0"),
        ("message.timestamp.before.max.ms", "-1"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "1"),
        ("segment.bytes", "1"),
        ("message.timestamp.type", "Now"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.compaction.lag.ms", str(2**63)),
        ("max.compaction.lag.ms", "0"),
    ],
)
def test_configs_that_kafka_refuses_are_refused(topics: Topics, name: str, value: str | None) -> None:
    assert refusal(lambda: topics.create("a", 1, {name: value}, NOW)) is ErrorCode.invalid_config
    topic = topics.create("a", 1, {}, NOW)
    assert (
        refusal(lambda: at_once(topics.altering_configs(topic, lambda _: {name: value}, NOW)))
        is ErrorCode.invalid_config
    )
    assert topic.configs == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("compression.type", word) for word in ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")],
        ("cleanup.policy", ""),
        ("compression.gzip.level", "-1"),
        ("flush.messages", "1"),
        ("flush.ms", "0"),
        ("follower.replication.throttled.replicas", "0:1,1:1"),
        ("leader.replication.throttled.replicas", "*"),
        ("local.retention.ms", "-2"),
        ("message.timestamp.after.max.ms", "0"),
        ("message.timestamp.before.max.ms", "86400000"),
        ("min.insync.replicas", "2"),
        ("remote.log.copy.disable", "true"),
        ("remote.storage.enable", "false"),
        ("retention.bytes", "-2"),
    ],
)
def test_configs_that_kafka_takes_are_kept_and_shown(tmp_path: Path, name: str, value: str) -> None:
    """MirrorMaker copies them all; where one of them were refused, it would make the topic without any."""
    topics = open_topics(tmp_path)
    topics.create("a", 1, {name: value}, NOW)
    topics.close()
    topic = open_topics(tmp_path).get("a")
    assert topic is not None and topic.configs[name] == value
    (shown,) = [each for each in describe_configs(Settings(), topic.configs) if each.name == name]
    assert shown.value == value


def test_configs_that_contradict_each_other_are_refused(topics: Topics) -> None:
    contradiction = {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}
    assert refusal(lambda: topics.create("a", 1, contradiction, NOW)) is ErrorCode.invalid_config


def test_an_unknown_config_names_the_nearest(topics: Topics) -> None:
    with pytest.raises(KafkaError, match=r"retnetion\.ms \(did you mean retention\.ms\?\)"):
        topics.create("a", 1, {"retnetion.ms": "1"}, NOW)


def test_a_topics_config_goes_before_the_servers_and_reaches_its_logs(topics: Topics) -> None:
    topic = topics.create("a", 2, {"segment.bytes": "5000"}, NOW)
    at_once(topics.altering_broker_configs({"log.segment.bytes": "7000", "log.retention.ms": "9000"}, NOW))
    for partition in topic.partitions:
        assert (partition.log.config.segment_bytes, partition.log.config.retention_ms) == (5000, 9000)
    at_once(topics.altering_configs(topic, lambda _: {"retention.ms": "-1", "cleanup.policy": "compact"}, NOW))
    for partition in topic.partitions:
        assert (partition.log.config.segment_bytes, partition.log.config.retention_ms) == (7000, -1)
        assert partition.log.config.compacts and not partition.log.config.deletes


def test_every_default_of_a_topic_is_what_the_servers_settings_say() -> None:
    config = log_config(Settings(), {})
    assert (config.segment_bytes, config.segment_ms, config.retention_ms) == (2**30, 604_800_000, 604_800_000)
    for each in TOPIC_CONFIGS.values():
        assert each.setting.default is not None or each.broker_value(Settings()) is not None, each.setting.name


def test_a_client_makes_a_topic_by_naming_it_unless_that_is_off(tmp_path: Path) -> None:
    assert at_once(open_topics(tmp_path / "on").auto_creating("a", NOW)).name == "a"
    topics = open_topics(tmp_path / "off", auto_create_topics_enable=False)
    assert refusal(lambda: at_once(topics.auto_creating("a", NOW))) is ErrorCode.unknown_topic_or_partition


# Taking turns


async def test_while_a_topic_is_made_its_name_and_its_partitions_count_as_taken(tmp_path: Path) -> None:
    topics = open_topics(tmp_path, oncelog_max_partitions=5)
    making = asyncio.create_task(EVERY_TURN_IS_OVER.run(topics.creating("a.b", 4, {}, NOW)))
    await asyncio.sleep(0)
    assert topics.get("a.b") is None
    assert refusal(lambda: topics.create("a.b", 1, {}, NOW)) is ErrorCode.topic_already_exists
    assert refusal(lambda: topics.create("a_b", 1, {}, NOW)) is ErrorCode.topic_already_exists
    assert refusal(lambda: topics.create("c", 2, {}, NOW)) is ErrorCode.invalid_partitions
    at_once(topics.altering_broker_configs({"log.segment.bytes": "5000"}, NOW))
    made = await making
    assert topics.get("a.b") is made
    assert [partition.log.config.segment_bytes for partition in made.partitions] == [5000] * 4


async def test_a_creation_that_is_given_up_half_way_leaves_nothing_in_the_way(topics: Topics, tmp_path: Path) -> None:
    making = asyncio.create_task(EVERY_TURN_IS_OVER.run(topics.creating("a", 4, {}, NOW)))
    await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert topics.partition_count == 0
    assert len(topics.create("a", 2, {}, NOW).partitions) == 2
    topics.close()
    assert len(open_topics(tmp_path).all()[0].partitions) == 2
    assert not (tmp_path / "a-2").exists()


async def test_a_topic_that_is_deleted_while_it_grows_stays_deleted(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("a", 1, {}, NOW)
    growing = asyncio.create_task(EVERY_TURN_IS_OVER.run(topics.adding_partitions(topic, 5, NOW)))
    await asyncio.sleep(0)
    with pytest.raises(KafkaError, match="growing already"):
        await EVERY_TURN_IS_OVER.run(topics.adding_partitions(topic, 6, NOW))
    delete_at_once(topics, topic)
    with pytest.raises(KafkaError) as caught:
        await growing
    assert caught.value.code is ErrorCode.unknown_topic_or_partition
    assert (topics.all(), topics.partition_count) == ([], 0)
    topics.close()
    assert open_topics(tmp_path).all() == []


def until_the_disk_is_waited_for(steps: Steps[object]) -> None:
    """The record is in the log then, and nothing else is to be waited for before."""
    while True:
        wait = next(steps)
        if wait is not None and not isinstance(wait, partial) and wait.__name__ == "flush":
            return
        if wait is not None:
            wait()


def test_of_changes_that_wait_for_the_disk_together_the_last_one_counts(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("a", 1, {}, NOW)
    first = topics.altering_configs(topic, lambda _: {"retention.ms": "1"}, NOW)
    growing = topics.adding_partitions(topic, 3, NOW)
    second = topics.altering_configs(topic, lambda _: {"retention.ms": "2"}, NOW)
    for steps in (first, growing, second):
        until_the_disk_is_waited_for(steps)
    assert len(topic.partitions) == 1, "what is stored in the others must be found again"
    for steps in (second, growing, first):
        at_once(steps)
    assert [partition.log.config.retention_ms for partition in topic.partitions] == [2] * 3
    topics.close()
    (again,) = open_topics(tmp_path).all()
    assert (len(again.partitions), again.configs) == (3, {"retention.ms": "2"})


def test_a_topic_that_is_deleted_when_its_new_partitions_wait_for_the_disk_takes_them_along(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("a", 1, {}, NOW)
    growing = topics.adding_partitions(topic, 3, NOW)
    until_the_disk_is_waited_for(growing)
    delete_at_once(topics, topic)
    at_once(growing)
    assert (topics.all(), topics.partition_count, len(topic.partitions)) == ([], 0, 1)
    topics.remove_deleted()
    assert {path.name for path in tmp_path.iterdir()} == {"__oncelog_metadata-0"}
    assert len(topics.create("a", 1, {}, NOW).partitions) == 1


async def test_a_topic_whose_maker_hangs_up_when_only_the_disk_is_waited_for_is_there(topics: Topics) -> None:
    making = topics.creating("a", 2, {}, NOW)
    until_the_disk_is_waited_for(making)
    assert topics.get("a") is None
    assert refusal(lambda: topics.create("a", 1, {}, NOW)) is ErrorCode.topic_already_exists
    making.close()
    found = topics.get("a")
    assert found is not None and len(found.partitions) == topics.partition_count == 2


# Deleting


def test_whoever_waits_at_a_deleted_partition_is_woken_and_sees_that_it_is_gone(topics: Topics) -> None:
    topic = topics.create("a", 1, {}, NOW)
    seen: list[bool] = []
    partition = topic.partitions[0]
    partition.waiters.add(lambda: seen.append(partition.is_deleted and topics.get("a") is None))
    delete_at_once(topics, topic)
    assert seen == [True]
    assert topics.by_id(topic.id) is None
    assert not partition.waiters


def test_a_topic_is_gone_with_the_first_step_of_its_deletion_and_its_name_is_free_after_the_last(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("a", 3, {}, NOW)
    deleting = topics.deleting(topic, NOW)
    next(deleting)
    for step, _ in enumerate(deleting):
        assert (topics.get("a"), topics.partition_count) == (None, 3)
        assert refusal(lambda: topics.create("a", 1, {}, NOW)) is ErrorCode.topic_already_exists
        for partition in topic.partitions:
            with pytest.raises(LogStorageError):
                append(partition)
        killed = copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-{step}"))
        assert open_topics(killed).all() == []
        assert {path.name for path in killed.iterdir()} == {"__oncelog_metadata-0"}
    assert topics.partition_count == 0
    assert len(topics.create("a", 1, {}, NOW).partitions) == 1


def test_a_deleted_topics_files_are_removed_and_nothing_elses(topics: Topics, tmp_path: Path) -> None:
    kept, gone = topics.create("kept", 1, {}, NOW), topics.create("gone", 2, {}, NOW)
    append(kept.partitions[0])
    append(gone.partitions[0])
    delete_at_once(topics, gone)
    topics.remove_deleted()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"__oncelog_metadata-0", "kept-0"}


def test_deleting_can_be_forbidden_and_internal_topics_stay(tmp_path: Path) -> None:
    topics = open_topics(tmp_path, delete_topic_enable=False)
    topic = topics.create("a", 1, {}, NOW)
    assert refusal(lambda: delete_at_once(topics, topic)) is ErrorCode.topic_deletion_disabled
    topics.settings.delete_topic_enable = True
    internal = topics.create("b", 1, {}, NOW, is_internal=True)
    assert refusal(lambda: delete_at_once(topics, internal)) is ErrorCode.invalid_topic_exception
    assert (
        refusal(lambda: at_once(topics.altering_configs(internal, lambda _: {}, NOW)))
        is ErrorCode.invalid_topic_exception
    )


def test_two_who_remove_what_was_deleted_remove_all_of_it(tmp_path: Path) -> None:
    disk = PausingDisk()
    topics = open_topics(tmp_path, disk)
    first, second = (topics.create(name, 1, {}, NOW) for name in ("first", "second"))
    delete_at_once(topics, first)
    disk.pause_at_unlink = True
    with ThreadPoolExecutor(2) as threads:
        removals = [threads.submit(topics.remove_deleted)]
        assert disk.paused.wait(30)
        delete_at_once(topics, second)
        removals.append(threads.submit(topics.remove_deleted))
        done, _ = wait(removals, timeout=0.2, return_when=FIRST_COMPLETED)
        disk.go_on.set()
    assert not done, "the second did not wait for the first"
    assert [path.name for path in tmp_path.glob("deleted.*")] == []


class PausingDisk(RealDisk):
    """One removal of a file waits until a test lets it go on."""

    def __init__(self) -> None:
        self.pause_at_unlink = False
        self.paused, self.go_on = threading.Event(), threading.Event()

    def unlink(self, path: str) -> None:
        if self.pause_at_unlink:
            self.pause_at_unlink = False
            self.paused.set()
            assert self.go_on.wait(30)
        super().unlink(path)
