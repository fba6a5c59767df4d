"""Topics after a stop, a crash or damage: what a start finds is the state before a change or the one after."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.cluster.folder_checking import check_folder
from oncelog.log.disk import Disk, RealDisk
from oncelog.log.work_steps import at_once
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.folders import Folders
from oncelog.server.local_topics import DataFolderError
from oncelog.server.metadata_log import MetadataLog
from oncelog.server.topics import Topics
from tests.depth import deeper, scaled
from tests.log import memory_disk
from tests.log.memory_disk import MemoryDisk
from tests.server.crashing_disk import CrashingDisk, Died
from tests.server.topics_support import NOW, append, delete_at_once, grow_to, open_topics, refusal, state


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return open_topics(tmp_path)


# Starting again


def test_everything_is_there_again_after_a_start(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("a", 2, {"retention.ms": "5000"}, NOW)
    topics.create("internal", 1, {}, NOW, is_internal=True)
    append(topic.partitions[1])
    grow_to(topics, topic, 3)
    at_once(topics.altering_broker_configs({"message.max.bytes": "5000"}, NOW))
    before = state(topics)
    topics.close()
    again = open_topics(tmp_path)
    assert state(again) == before
    assert (internal := again.get("internal")) is not None and internal.is_internal
    assert again.settings.message_max_bytes == 5000
    at_once(again.altering_broker_configs({}, NOW))
    assert again.settings.message_max_bytes == 1_048_588


def test_a_setting_kept_by_another_version_does_not_stop_the_start(topics: Topics, tmp_path: Path) -> None:
    MetadataLog(next(iter(topics.logs()))).put_broker_configs(
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


def test_folders_that_changed_places_are_not_served(topics: Topics, tmp_path: Path) -> None:
    first, second = (topics.create(name, 2, {}, NOW) for name in "ab")
    for topic in (first, second):
        append(topic.partitions[0], topic.name.encode())
    before = state(topics)
    topics.close()

    def swap(one: str, other: str) -> None:
        (tmp_path / one).rename(tmp_path / "between")
        (tmp_path / other).rename(tmp_path / one)
        (tmp_path / "between").rename(tmp_path / other)

    for one, other in (("a-0", "b-0"), ("a-0", "a-1")):
        swap(one, other)
        again = open_topics(tmp_path)
        offline = {log.folder.rpartition("/")[2]: log.offline for log in again.logs() if log.offline is not None}
        assert set(offline) == {one, other}
        assert f"stands in the place of {first.id}/0" in offline[one]
        damaged = {checked.name: checked.damage for checked in check_folder(RealDisk(), str(tmp_path))}
        assert {name: each for name, each in damaged.items() if name.endswith(("-0", "-1")) and each} == {
            name: [why] for name, why in offline.items()
        }
        again.close()
        swap(one, other)
    assert state(open_topics(tmp_path)) == before


def test_a_check_names_a_folder_that_cannot_be_read_and_goes_on_with_the_others(topics: Topics, tmp_path: Path) -> None:
    for name in "ab":
        append(topics.create(name, 1, {}, NOW).partitions[0])
    topics.close()
    shutil.rmtree(tmp_path / "a-0")
    (tmp_path / "a-0").symlink_to(tmp_path / "a-0")
    checked = {each.name: each for each in check_folder(RealDisk(), str(tmp_path))}
    (damage,) = checked["a-0"].damage
    assert damage.startswith("it cannot be read: ")
    assert (checked["b-0"].damage, checked["b-0"].records) == ([], 1)


def test_a_damaged_log_of_topics_stops_the_start(topics: Topics, tmp_path: Path) -> None:
    topics.create("a", 1, {}, NOW)
    topics.close()
    file = next((tmp_path / "__oncelog_metadata-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[30] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataFolderError, match="which topics there are cannot be read"):
        open_topics(tmp_path)


def test_a_log_of_topics_that_is_gone_stops_the_start(topics: Topics, tmp_path: Path) -> None:
    topics.create("a", 1, {}, NOW)
    topics.close()
    folder = tmp_path / "__oncelog_metadata-0"
    folder.rename(tmp_path / "aside")
    for _ in range(2):
        with pytest.raises(DataFolderError, match="put it back, or make an empty one"):
            open_topics(tmp_path)
        assert not folder.exists() and (tmp_path / "a-0").exists()
    (tmp_path / "aside").rename(folder)
    again = open_topics(tmp_path)
    assert [topic.name for topic in again.all()] == ["a"]


def test_damage_to_the_log_of_topics_after_a_kill_stops_the_start_and_touches_nothing(tmp_path: Path) -> None:
    """Every change was answered, so none of it is a torn write; only what is torn behind them is cut off."""
    topics = open_topics(tmp_path)
    topics.create("a", 1, {}, NOW)
    topics.create("b", 1, {}, NOW)  # and no close: a kill
    file = next((tmp_path / "__oncelog_metadata-0").glob("*.log"))
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:70])
    assert {topic.name for topic in open_topics(tmp_path).all()} == {"a", "b"}
    for position in (3, 100, len(whole) - 5):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(DataFolderError) as caught:
            open_topics(tmp_path)
        assert str(file) in str(caught.value) and "Restore the files in" in str(caught.value)
        assert file.read_bytes() == damaged


def test_a_wrong_byte_in_the_index_of_the_log_of_topics_does_no_harm(topics: Topics, tmp_path: Path) -> None:
    topics.create("a", 1, {}, NOW)
    topics.close()
    file = next((tmp_path / "__oncelog_metadata-0").glob("*.index"))
    whole = file.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        file.write_bytes(damaged)
        again = open_topics(tmp_path)
        assert [topic.name for topic in again.all()] == ["a"], f"byte {position}"
        again.close()


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


def test_what_nobody_knows_and_cannot_be_removed_is_in_no_starts_way(topics: Topics, tmp_path: Path) -> None:
    topics.create("a", 1, {}, NOW)
    topics.close()
    (tmp_path / "left-0" / "below").mkdir(parents=True)
    (tmp_path / "a-1").write_text("a file of the name of a partition's folder")
    assert [topic.name for topic in open_topics(tmp_path).all()] == ["a"]
    assert (tmp_path / "a-1").exists() and (tmp_path / "left-0").exists()


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
    delete_at_once(topics, topic)
    topics.remove_deleted()


def alter(topics: Topics) -> None:
    topic = topics.get("old")
    assert topic is not None
    at_once(topics.altering_configs(topic, lambda _: {"retention.ms": "77"}, NOW))


CHANGES: dict[str, Change] = {
    "create": lambda topics: topics.create("new", 2, {"retention.ms": "5"}, NOW),
    "grow": grow,
    "delete": delete,
    "alter": alter,
    "settings": lambda topics: at_once(topics.altering_broker_configs({"message.max.bytes": "5000"}, NOW)),
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

SEEDS_A_STEP = scaled(1)
ON_MEMORY = [name for name in CHANGES if name != "delete"]  # the disk in memory cannot rename a folder


@deeper
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
