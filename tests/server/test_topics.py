"""Topics: what can be made and what is refused, and that a crash leaves the state before a change or the one after."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from oncelog.clock import ManualClock
from oncelog.log import memory_disk
from oncelog.log.disk import Disk, RealDisk
from oncelog.log.memory_disk import MemoryDisk
from oncelog.producers import ProducerMap
from oncelog.records.build import build_batch
from oncelog.records.header import read_header
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.folders import Folders
from oncelog.server.settings import Settings
from oncelog.server.topic_configs import TOPIC_CONFIGS, log_config
from oncelog.server.topics import DataFolderError, Partition, Topic, Topics
from tests.server.crashing_disk import CrashingDisk, Died

NOW = ManualClock().now()


def open_topics(folder: Path, disk: Disk | None = None, **settings: object) -> Topics:
    return Topics(Settings(log_dir=str(folder), **settings), disk or RealDisk(), ProducerMap, NOW)  # type: ignore[arg-type]


def append(partition: Partition, value: bytes = b"value") -> None:
    batch = build_batch([(None, value, (), NOW.wall_ms)], timestamp_ms=NOW.wall_ms)
    partition.log.append(batch, read_header(batch), NOW)


def state(topics: Topics) -> dict[str, object]:
    return {
        topic.name: (topic.id, [partition.log.next_offset for partition in topic.partitions], topic.configs)
        for topic in topics.all()
    }


def grow_to(topics: Topics, topic: Topic, count: int) -> None:
    asyncio.run(topics.add_partitions(topic, count, NOW))


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return open_topics(tmp_path)


def refusal(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        work()
    return caught.value.code


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
    topics.delete(first, NOW)
    second = topics.create("a_b", 1, {}, NOW)
    topics.delete(second, NOW)
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
    topics.delete(topic, NOW)
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
        ("compression.type", "zstd"),
        ("min.insync.replicas", "2"),
        ("flush.messages", "1"),
        ("segment.bytes", "1"),
        ("message.timestamp.type", "Now"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.compaction.lag.ms", str(2**63)),
        ("max.compaction.lag.ms", "0"),
    ],
)
def test_configs_that_cannot_be_kept_are_refused(topics: Topics, name: str, value: str | None) -> None:
    assert refusal(lambda: topics.create("a", 1, {name: value}, NOW)) is ErrorCode.invalid_config
    topic = topics.create("a", 1, {}, NOW)
    assert refusal(lambda: topics.alter_configs(topic, {name: value}, NOW)) is ErrorCode.invalid_config
    assert topic.configs == {}


def test_configs_that_contradict_each_other_are_refused(topics: Topics) -> None:
    contradiction = {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}
    assert refusal(lambda: topics.create("a", 1, contradiction, NOW)) is ErrorCode.invalid_config


def test_an_unknown_config_names_the_nearest(topics: Topics) -> None:
    with pytest.raises(KafkaError, match=r"retnetion\.ms \(did you mean retention\.ms\?\)"):
        topics.create("a", 1, {"retnetion.ms": "1"}, NOW)


def test_a_topics_config_goes_before_the_servers_and_reaches_its_logs(topics: Topics) -> None:
    topic = topics.create("a", 2, {"segment.bytes": "5000"}, NOW)
    topics.alter_broker_configs({"log.segment.bytes": "7000", "log.retention.ms": "9000"}, NOW)
    for partition in topic.partitions:
        assert (partition.log.config.segment_bytes, partition.log.config.retention_ms) == (5000, 9000)
    topics.alter_configs(topic, {"retention.ms": "-1", "cleanup.policy": "compact"}, NOW)
    for partition in topic.partitions:
        assert (partition.log.config.segment_bytes, partition.log.config.retention_ms) == (7000, -1)
        assert partition.log.config.compacts and not partition.log.config.deletes


def test_every_default_of_a_topic_is_what_the_servers_settings_say() -> None:
    config = log_config(Settings(), {})
    assert (config.segment_bytes, config.segment_ms, config.retention_ms) == (2**30, 604_800_000, 604_800_000)
    for each in TOPIC_CONFIGS.values():
        assert each.setting.default is not None or each.broker_value(Settings()) is not None, each.setting.name


def test_a_client_makes_a_topic_by_naming_it_unless_that_is_off(tmp_path: Path) -> None:
    assert open_topics(tmp_path / "on").auto_create("a", NOW).name == "a"
    topics = open_topics(tmp_path / "off", auto_create_topics_enable=False)
    assert refusal(lambda: topics.auto_create("a", NOW)) is ErrorCode.unknown_topic_or_partition


# Taking turns


async def test_while_a_topic_is_made_its_name_and_its_partitions_count_as_taken(tmp_path: Path) -> None:
    topics = open_topics(tmp_path, oncelog_max_partitions=5)
    making = asyncio.create_task(topics.create_in_turns("a.b", 4, {}, NOW))
    await asyncio.sleep(0)
    assert topics.get("a.b") is None
    assert refusal(lambda: topics.create("a.b", 1, {}, NOW)) is ErrorCode.topic_already_exists
    assert refusal(lambda: topics.create("a_b", 1, {}, NOW)) is ErrorCode.topic_already_exists
    assert refusal(lambda: topics.create("c", 2, {}, NOW)) is ErrorCode.invalid_partitions
    topics.alter_broker_configs({"log.segment.bytes": "5000"}, NOW)
    made = await making
    assert topics.get("a.b") is made
    assert [partition.log.config.segment_bytes for partition in made.partitions] == [5000] * 4


async def test_a_creation_that_is_given_up_half_way_leaves_nothing_in_the_way(topics: Topics, tmp_path: Path) -> None:
    making = asyncio.create_task(topics.create_in_turns("a", 4, {}, NOW))
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
    growing = asyncio.create_task(topics.add_partitions(topic, 5, NOW))
    await asyncio.sleep(0)
    with pytest.raises(KafkaError, match="growing already"):
        await topics.add_partitions(topic, 6, NOW)
    topics.delete(topic, NOW)
    with pytest.raises(KafkaError) as caught:
        await growing
    assert caught.value.code is ErrorCode.unknown_topic_or_partition
    assert (topics.all(), topics.partition_count) == ([], 0)
    topics.close()
    assert open_topics(tmp_path).all() == []


# Deleting


def test_whoever_waits_at_a_deleted_partition_is_woken_and_sees_that_it_is_gone(topics: Topics) -> None:
    topic = topics.create("a", 1, {}, NOW)
    seen: list[bool] = []
    partition = topic.partitions[0]
    partition.waiters.add(lambda: seen.append(partition.is_deleted and topics.get("a") is None))
    topics.delete(topic, NOW)
    assert seen == [True]
    assert topics.by_id(topic.id) is None
    assert not partition.waiters


def test_a_deleted_topics_files_are_removed_and_nothing_elses(topics: Topics, tmp_path: Path) -> None:
    kept, gone = topics.create("kept", 1, {}, NOW), topics.create("gone", 2, {}, NOW)
    append(kept.partitions[0])
    append(gone.partitions[0])
    topics.delete(gone, NOW)
    topics.remove_deleted()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"__oncelog_metadata-0", "kept-0"}


def test_deleting_can_be_forbidden_and_internal_topics_stay(tmp_path: Path) -> None:
    topics = open_topics(tmp_path, delete_topic_enable=False)
    topic = topics.create("a", 1, {}, NOW)
    assert refusal(lambda: topics.delete(topic, NOW)) is ErrorCode.topic_deletion_disabled
    topics.settings.delete_topic_enable = True
    internal = topics.create("b", 1, {}, NOW, is_internal=True)
    assert refusal(lambda: topics.delete(internal, NOW)) is ErrorCode.invalid_topic_exception
    assert refusal(lambda: topics.alter_configs(internal, {}, NOW)) is ErrorCode.invalid_topic_exception


# Starting again


def test_everything_is_there_again_after_a_start(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("a", 2, {"retention.ms": "5000"}, NOW)
    topics.create("internal", 1, {}, NOW, is_internal=True)
    append(topic.partitions[1])
    grow_to(topics, topic, 3)
    topics.alter_broker_configs({"message.max.bytes": "5000"}, NOW)
    before = state(topics)
    topics.close()
    again = open_topics(tmp_path)
    assert state(again) == before
    assert (internal := again.get("internal")) is not None and internal.is_internal
    assert again.settings.message_max_bytes == 5000
    again.alter_broker_configs({}, NOW)
    assert again.settings.message_max_bytes == 1_048_588


def test_a_setting_kept_by_another_version_does_not_stop_the_start(topics: Topics, tmp_path: Path) -> None:
    topics._metadata.put_broker_configs(
        {"was.once.known": "1", "message.max.bytes": "big", "max.connections": "5"}, NOW
    )
    topics.close()
    assert open_topics(tmp_path).settings.max_connections == 5


def test_a_folder_that_went_missing_stops_the_start_and_says_what_to_do(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("a", 1, {}, NOW)
    append(topic.partitions[0])
    topics.close()
    (tmp_path / "a-0").rename(tmp_path / "elsewhere")
    with pytest.raises(DataFolderError, match=r"a-0 is missing: put it back"):
        open_topics(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "a-0")
    assert state(open_topics(tmp_path)) == state(topics)


def test_a_damaged_log_of_topics_stops_the_start(topics: Topics, tmp_path: Path) -> None:
    topics.create("a", 1, {}, NOW)
    topics.close()
    file = next((tmp_path / "__oncelog_metadata-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[30] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataFolderError, match="which topics there are cannot be read"):
        open_topics(tmp_path)


def test_a_folder_with_records_that_nobody_knows_is_left_alone_and_its_name_stays_taken(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("a", 1, {}, NOW)
    append(topic.partitions[0])
    topics.close()
    stray = tmp_path / "stray-0"
    (tmp_path / "a-0").rename(stray)
    (tmp_path / "a-0").mkdir()
    again = open_topics(tmp_path)
    assert stray.exists()
    assert refusal(lambda: again.create("stray", 1, {}, NOW)) is ErrorCode.invalid_topic_exception
    assert again.get("stray") is None


def test_an_empty_folder_that_nobody_knows_is_removed(topics: Topics, tmp_path: Path) -> None:
    topics.close()
    (tmp_path / "left-0").mkdir()
    (tmp_path / "left-0" / f"{0:020d}.log").touch()
    (tmp_path / "not a topic").mkdir()
    open_topics(tmp_path)
    assert not (tmp_path / "left-0").exists()
    assert (tmp_path / "not a topic").exists()


def test_only_folders_of_partitions_are_taken_for_such(tmp_path: Path) -> None:
    for name in ("a-0", "a-b-12", "a-01", "a", "-0", "a b-0", "..-0"):
        (tmp_path / name).mkdir()
    assert list(Folders(RealDisk(), str(tmp_path)).found()) == [("a", 0), ("a-b", 12)]


# Dying between any two steps

Change = Callable[[Topics], object]


def grow(topics: Topics) -> None:
    topic = topics.get("old")
    assert topic is not None
    grow_to(topics, topic, 4)


def delete(topics: Topics) -> None:
    topic = topics.get("old")
    assert topic is not None
    topics.delete(topic, NOW)
    topics.remove_deleted()


def alter(topics: Topics) -> None:
    topic = topics.get("old")
    assert topic is not None
    topics.alter_configs(topic, {"retention.ms": "77"}, NOW)


CHANGES: dict[str, Change] = {
    "create": lambda topics: topics.create("new", 2, {"retention.ms": "5"}, NOW),
    "grow": grow,
    "delete": delete,
    "alter": alter,
    "settings": lambda topics: topics.alter_broker_configs({"message.max.bytes": "5000"}, NOW),
}


def prepared(folder: Path, disk: Disk | None = None) -> Topics:
    topics = open_topics(folder)
    old = topics.create("old", 2, {}, NOW)
    append(old.partitions[0])
    append(topics.create("other", 1, {}, NOW).partitions[0])
    topics.close()
    return open_topics(folder, disk)


def shape(topics: Topics) -> dict[str, object]:
    """The state without the ids, which are chance."""
    shapes: dict[str, object] = {
        topic.name: ([partition.log.next_offset for partition in topic.partitions], topic.configs)
        for topic in topics.all()
    }
    return shapes | {"settings": topics.settings.message_max_bytes}


def steps_of(change: Change, folder: Path) -> tuple[int, dict[str, object], dict[str, object]]:
    """How many changes of the disk it makes, and the states before and after."""
    disk = CrashingDisk()
    topics = prepared(folder, disk)
    before, changes_before = shape(topics), disk.changes
    change(topics)
    return disk.changes - changes_before, before, shape(topics)


@pytest.mark.parametrize("name", CHANGES)
def test_a_crash_between_any_two_steps_leaves_the_state_before_or_after(name: str, tmp_path: Path) -> None:
    change = CHANGES[name]
    steps, before, after = steps_of(change, tmp_path / "whole")
    assert steps > 0
    seen = []
    for step in range(steps + 1):
        folder = tmp_path / str(step)
        disk = CrashingDisk()
        topics = prepared(folder, disk)
        disk.die_at = disk.changes + step
        try:
            change(topics)
        except Died:
            pass
        again = open_topics(folder)
        assert shape(again) in (before, after), f"died before change {step} of {steps}"
        seen.append(shape(again) == after)
        change_again = shape(again) == before and name in ("create", "grow")
        if change_again:
            change(again)
            assert shape(again) == after
        again.close()
        folders = {path.name for path in folder.iterdir() if path.is_dir()}
        wanted = {f"{topic.name}-{index}" for topic in again.all() for index in range(len(topic.partitions))}
        assert folders == wanted | {"__oncelog_metadata-0"}, f"died before change {step} of {steps}"
    assert seen == sorted(seen) and seen[0] is False and seen[-1] is True


@pytest.mark.parametrize("name", CHANGES)
def test_a_disk_that_refuses_half_way_leaves_what_a_start_would_find(name: str, tmp_path: Path) -> None:
    change = CHANGES[name]
    steps, before, after = steps_of(change, tmp_path / "whole")
    for step in range(steps):
        folder = tmp_path / str(step)
        disk = CrashingDisk()
        topics = prepared(folder, disk)
        disk.refuse_at = disk.changes + step
        try:
            change(topics)
        except KafkaError as refused:
            assert refused.code is ErrorCode.kafka_storage_error
        here = shape(topics)
        assert here in (before, after)
        disk.refuse_at = None
        assert shape(open_topics(folder)) == here, f"refused from change {step} of {steps}"


# Power failures: what was not flushed may be lost, in part, and names may have their old meaning

SEEDS_A_STEP = 3
ON_MEMORY = [name for name in CHANGES if name != "delete"]  # the disk in memory cannot rename a folder


@pytest.mark.parametrize("name", ON_MEMORY)
def test_a_power_failure_between_any_two_steps_leaves_the_state_before_or_after(name: str) -> None:
    change = CHANGES[name]
    folder = Path("data")
    disk = MemoryDisk()
    topics = on_memory(disk)
    before, first = shape(topics), disk.operations
    change(topics)
    after, steps = shape(topics), disk.operations - first
    assert steps > 0
    seen = set()
    for seed in range(steps * SEEDS_A_STEP):
        disk = MemoryDisk(seed)
        topics = on_memory(disk)
        disk.die_at(disk.operations + seed % steps)
        try:
            change(topics)
        except memory_disk.Died:
            pass
        found = shape(open_topics(folder, disk.crash()))
        assert found in (before, after), f"seed {seed}: died before change {seed % steps} of {steps}"
        seen.add(found == after)
    assert seen == {False, True}


def test_a_change_that_was_answered_survives_a_power_failure() -> None:
    for name in ON_MEMORY:
        for seed in range(10):
            disk = MemoryDisk(seed)
            topics = on_memory(disk)
            CHANGES[name](topics)
            assert shape(open_topics(Path("data"), disk.crash())) == shape(topics), f"{name}, seed {seed}"


def on_memory(disk: MemoryDisk) -> Topics:
    topics = open_topics(Path("data"), disk)
    append(topics.create("old", 2, {}, NOW).partitions[0])
    append(topics.create("other", 1, {}, NOW).partitions[0])
    topics.close()
    return open_topics(Path("data"), disk)


def test_what_a_kill_left_unflushed_is_on_the_disk_before_it_counts() -> None:
    """With oncelog.flush=every. Whoever sends the batch again is told that it is there."""
    for seed in range(10):
        disk = MemoryDisk(seed)
        killed = open_topics(Path("data"), disk, oncelog_flush="every")
        partition = killed.create("t", 1, {}, NOW).partitions[0]
        append(partition)
        assert partition.log.high_watermark == 0
        again = open_topics(Path("data"), disk, oncelog_flush="every").partition("t", 0)
        assert again is not None and again.log.high_watermark == 1
        found = open_topics(Path("data"), disk.crash()).partition("t", 0)
        assert found is not None and found.log.next_offset == 1, f"seed {seed}"


def test_two_who_remove_what_was_deleted_remove_all_of_it(tmp_path: Path) -> None:
    disk = PausingDisk()
    topics = open_topics(tmp_path, disk)
    first, second = (topics.create(name, 1, {}, NOW) for name in ("first", "second"))
    topics.delete(first, NOW)
    disk.pause_at_unlink = True
    with ThreadPoolExecutor(2) as threads:
        removals = [threads.submit(topics.remove_deleted)]
        assert disk.paused.wait(30)
        topics.delete(second, NOW)
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
