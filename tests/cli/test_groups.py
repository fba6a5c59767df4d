"""`oncelog groups`: how far behind they are, and where they go on."""

import pytest

from oncelog.client.admin import Admin
from oncelog.client.consumer.consumer import Consumer
from oncelog.embedded import Server
from tests.cli.running import Oncelog
from tests.raw import RawConnection, Rec, batch

TIME_MS = 1_700_000_000_000


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """Ten records in partition 0, a second apart, and one in partition 2."""
    records: list[Rec | bytes | None] = [Rec(b"v", timestamp_delta_ms=1000 * number) for number in range(10)]
    with RawConnection(server.bootstrap_servers) as raw:
        assert raw.produce(topic, 0, batch(records, timestamp_ms=TIME_MS)).error_code == 0
        assert raw.produce(topic, 2, batch([b"w"], timestamp_ms=TIME_MS)).error_code == 0
    return topic


def reset(oncelog: Oncelog, group: str, *options: str) -> dict[int, tuple[int | None, int]]:
    rows = oncelog("groups reset", group, "-J", *options).json
    return {row["partition"]: (row["before"], row["after"]) for row in rows}


def test_a_group_is_put_where_it_is_told(oncelog: Oncelog, filled: str) -> None:
    group = f"of-{filled}"
    assert reset(oncelog, group, "-t", filled, "-p", "0", "-o", "4") == {0: (None, 4)}
    assert reset(oncelog, group, "-o", "-3") == {0: (4, 7)}
    assert reset(oncelog, group, "-o", f"s@{TIME_MS + 1500}") == {0: (7, 2)}
    assert reset(oncelog, group, "-o", "end", "--dry-run") == {0: (2, 10)}
    assert reset(oncelog, group, "-t", filled, "-o", "beginning") == {0: (2, 0), 1: (None, 0), 2: (None, 0)}
    assert reset(oncelog, group, "-o", "end") == {0: (0, 10), 1: (0, 0), 2: (0, 1)}


def test_lag_is_told_for_every_partition(oncelog: Oncelog, filled: str) -> None:
    group = f"of-{filled}"
    reset(oncelog, group, "-t", filled, "-p", "0", "-o", "4")
    (told,) = oncelog("groups describe", group, "-J").json
    assert (told["group"], told["state"], told["members"]) == (group, "Empty", [])
    rows = [(row["topic"], row["partition"], row["committed"], row["end"], row["lag"]) for row in told["partitions"]]
    assert rows == [(filled, 0, 4, 10, 6), (filled, 1, None, 0, None), (filled, 2, None, 1, None)]
    table = oncelog("groups describe", group).lines
    assert table[1].split() == [group, filled, "0", "4", "10", "6", "-", "-", "-"]
    assert table[3].split() == [group, filled, "2", "-", "1", "-", "-", "-", "-"]
    everything = oncelog("groups describe", "-J").json
    assert told in everything and len(everything) == len(oncelog("groups", "-J").json)
    assert {"group": group, "state": "Empty", "kind": None, "protocol": "classic"} in oncelog("groups", "-J").json


def test_members_are_told_and_keep_a_group_from_being_changed(oncelog: Oncelog, server: Server, filled: str) -> None:
    group = f"of-{filled}"
    properties = {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "client.id": "me"}
    with Consumer({**properties, "auto.offset.reset": "earliest", "group.instance.id": "first"}) as consumer:
        consumer.subscribe([filled])
        assert consumer.poll(60) is not None
        (told,) = oncelog("groups describe", group, "-J").json
        assert (told["state"], told["assignor"], len(told["members"])) == ("Stable", "range", 1)
        assert [(row["partition"], row["member"], row["client"]) for row in told["partitions"]] == [
            (index, "first", "me") for index in range(3)
        ]
        assert oncelog("groups describe", group).lines[-1] == f"{group}: Stable, 1 member"
        refusal = oncelog.run("groups delete", group).refusal
        assert "has members: stop them first; first may have ended already" in refusal
        assert "half an hour after its last commit" in refusal
        said = oncelog.run("groups reset", group, "-t", filled, "-o", "end")
        assert "has members: stop them first" in said.refusal


def test_a_member_cannot_speak_to_the_terminal_by_its_name(oncelog: Oncelog, server: Server, filled: str) -> None:
    group = f"shown-{filled}"
    properties = {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    with Consumer({**properties, "group.instance.id": "first\x1b]0;title\x07"}) as consumer:
        consumer.subscribe([filled])
        assert consumer.poll(60) is not None
        refusal = oncelog.run("groups delete", group).refusal
    assert "first\\x1b]0;title\\x07 may have ended already" in refusal


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_protocol_of_a_group_and_its_members_is_told(
    oncelog: Oncelog, server: Server, filled: str, protocol: str
) -> None:
    group = f"of-{filled}"
    properties = {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "group.protocol": protocol}
    with Consumer({**properties, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([filled])
        assert consumer.poll(60) is not None
        (listed,) = [each for each in oncelog("groups", "-J").json if each["group"] == group]
        assert (listed["kind"], listed["protocol"]) == ("consumer", protocol)
        assert oncelog("groups").lines[0].split() == ["GROUP", "STATE", "KIND", "PROTOCOL"]
        (told,) = oncelog("groups describe", group, "-J").json
        assert [each["protocol"] for each in told["members"]] == [protocol]


def test_a_group_is_removed(oncelog: Oncelog, server: Server, filled: str) -> None:
    group = f"of-{filled}"
    reset(oncelog, group, "-t", filled, "-o", "end")
    oncelog("groups delete", group)
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        assert group not in [each.group_id for each in admin.list_consumer_groups().result(60)]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("describe of-{topic}x", 1, "there is no group of-{topic}x; the nearest known one is of-{topic}"),
        ("delete of-{topic}x", 1, "there is no group of-{topic}x; the nearest known one is of-{topic}"),
        ("reset of-{topic}x -o end", 1, "has committed nothing: -t TOPIC says of which topics"),
        ("reset of-{topic} -o 99", 1, "{topic} [0] has the offsets 0 to 10, not 99"),
        ("reset of-{topic} -o stored", 2, "that is where the group is already"),
        ("reset of-{topic} -o e@5", 2, "expected beginning, end, an offset, -N (N before the end) or s@MS"),
        ("reset of-{topic}", 2, "Missing option '-o'"),
        ("reset of-{topic} -t {topic}x -o end", 1, "there is no topic {topic}x; the nearest known one is {topic}"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    oncelog: Oncelog, filled: str, command: str, code: int, words: str
) -> None:
    reset(oncelog, f"of-{filled}", "-t", filled, "-p", "0", "-o", "4")
    action, *options = command.replace("{topic}", filled).split()
    said = oncelog.run(f"groups {action}", *options)
    assert words.replace("{topic}", filled) in said.refusal
    assert said.code == code
