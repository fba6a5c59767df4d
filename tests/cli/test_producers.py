"""`oncelog producers` and `oncelog leases`: what partitions remember of who wrote to them."""

from oncelog.embedded import Server
from tests.cli.running import Oncelog
from tests.raw import RawConnection, batch

TIME_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def test_a_leased_producer_and_one_of_kafka_are_told(oncelog: Oncelog, server: Server, topic: str) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        asked = [{"name": topic, "partitions": [1]}]
        lease = raw.call("lease_pid", 0, topics=asked).topics[0].partitions[0]
        identity = {"pid": lease.producer_id, "epoch": lease.generation, "sequence": 0}
        assert raw.produce(topic, 1, batch([b"a"] * 7, timestamp_ms=TIME_MS, **identity)).error_code == 0
        pid, epoch = raw.init_producer_id()
        theirs = batch([b"a"] * 3, timestamp_ms=TIME_MS + 1000, pid=pid, epoch=epoch, sequence=0)
        assert raw.produce(topic, 1, theirs).error_code == 0
    leased, kafka = oncelog("producers", topic, "-J").json
    left_ms = leased.pop("lease_left_ms")
    assert 0 < left_ms <= DAY_MS
    assert leased == {
        "partition": 1,
        "pid": lease.producer_id,
        "generation": lease.generation,
        "last_sequence": 6,
        "last_offset": 6,
        "last_timestamp_ms": TIME_MS,
    }
    assert (kafka["pid"], kafka["last_sequence"], kafka["last_offset"], kafka["lease_left_ms"]) == (pid, 2, 9, None)
    heading, *rows = oncelog("producers", topic).lines
    assert " ".join(heading.split()) == "PARTITION PID GENERATION LAST SEQUENCE LAST OFFSET LAST WRITE LEASE LEFT"
    assert rows[1].split() == ["1", str(pid), str(epoch), "2", "9", "2023-11-14T22:13:21Z", "-"]
    assert rows[0].endswith("23h 59m")
    assert oncelog("producers", topic, "-p", "0", "-J").json == []

    facts = oncelog("leases", topic, "-J").json
    assert [(each["partition"], each["live"], each["remembered"]) for each in facts] == [
        (0, 0, 0),
        (1, 1, 1),
        (2, 0, 0),
    ]
    assert {(each["lifetime_ms"], each["capacity"]) for each in facts} == {(DAY_MS, 65_536)}
    table = [line.split() for line in oncelog("leases", topic).lines]
    assert table[2] == [topic, "1", "1d", "1", "1", "65536", "0.0015%"]


def test_a_producer_with_a_time_outside_of_the_calendar_is_told(oncelog: Oncelog, server: Server, topic: str) -> None:
    far_ms = 2**62
    oncelog("topics alter", topic, "-c", f"message.timestamp.after.max.ms={2**63 - 1}")
    with RawConnection(server.bootstrap_servers) as raw:
        pid, epoch = raw.init_producer_id()
        theirs = batch([b"a"], timestamp_ms=far_ms, pid=pid, epoch=epoch, sequence=0)
        assert raw.produce(topic, 1, theirs).error_code == 0
    assert [each["last_timestamp_ms"] for each in oncelog("producers", topic, "-J").json] == [far_ms]
    assert str(far_ms) in oncelog("producers", topic).lines[1]


def test_a_lease_that_is_over_is_remembered_and_no_longer_alive(oncelog: Oncelog, server: Server, topic: str) -> None:
    oncelog("produce", "-t", topic, "-p", "1", stdin=b"a\n")
    partition = server.broker.topics.partition(topic, 1)
    assert partition is not None
    entries = partition.log.producers.leased.entries

    def a_day_later() -> None:
        entries.seen_ms[0] -= DAY_MS

    server.call(a_day_later)
    assert [each["lease_left_ms"] for each in oncelog("producers", topic, "-J").json] == [0]
    told = oncelog("leases", topic, "-J").json[1]
    assert (told["live"], told["remembered"]) == (0, 1)


def test_without_a_topic_the_leases_of_all_are_told(oncelog: Oncelog, topic: str) -> None:
    assert (topic, 2) in {(each["topic"], each["partition"]) for each in oncelog("leases", "-J").json}


def test_an_unknown_topic_is_told_with_the_nearest(oncelog: Oncelog, topic: str) -> None:
    for command in ("producers", "leases"):
        said = oncelog.run(command, f"{topic}x")
        assert f"there is no topic {topic}x; the nearest known one is {topic}" in said.refusal
