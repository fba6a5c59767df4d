"""`oncelog cluster`: what is said of brokers and replicas, and how leaders and replicas are moved."""

from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.embedded import Server
from tests.cli.running import Oncelog, Said
from tests.raw import RawConnection
from tests.waiting import until

ONES = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


class Patient(Oncelog):
    """Waits longer for brokers than people do."""

    def run(self, command: str, *arguments: str, stdin: bytes = b"") -> Said:
        return super().run(command, "-m", "60", *arguments, stdin=stdin)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Server]:
    with Server(brokers=4, settings=ONES | {"auto.leader.rebalance.enable": "false"}) as server:
        yield server


@pytest.fixture
def cluster(brokers: Server) -> Oncelog:
    return Patient(brokers.bootstrap_servers)


def made(cluster: Oncelog, name: str, *replicas: int, partitions: int = 2) -> str:
    """A topic, each of whose partitions is at these brokers."""
    cluster("topics create", name, "-p", str(partitions))
    cluster("cluster reassign", "-t", name, "--to", ",".join(map(str, replicas)), "--wait")
    cluster("cluster elect", "-t", name)
    return name


def others(brokers: Server, but: int) -> Oncelog:
    addresses = brokers.bootstrap_servers.split(",")
    return Patient(",".join(each for number, each in enumerate(addresses, 1) if number != but))


def described(cluster: Oncelog, name: str) -> list[dict[str, Any]]:
    found = cluster("cluster describe", "-t", name, "-J").json["partitions"]
    assert isinstance(found, list)
    return found


def test_a_server_that_stands_alone_is_a_cluster_of_one(oncelog: Oncelog, topic: str) -> None:
    told = oncelog("cluster describe", "-t", topic, "-J").json
    assert [(each["id"], each["state"], each["rack"]) for each in told["brokers"]] == [(1, "up", None)]
    assert told["counts"]["under_replicated"] == told["counts"]["without_leader"] == told["counts"]["moving"] == 0
    first = {"topic": topic, "partition": 0, "leader": 1, "replicas": [1], "in_sync": [1], "eligible": [], "lag": {}}
    assert first.items() <= told["partitions"][0].items()
    assert oncelog("cluster elect", "-t", topic, "-J").json == []
    assert oncelog("cluster spread", "-t", topic, "-J").json == []


def test_partitions_are_shown_with_their_replicas_and_how_far_each_is_behind(cluster: Oncelog) -> None:
    name = made(cluster, "shown", 2, 1, 3)
    cluster("produce", "-t", name, "-p", "0", stdin=b"a\nb\n")
    told = described(cluster, name)
    each = {"leader": 2, "replicas": [2, 1, 3], "in_sync": [2, 1, 3], "eligible": [], "adding": [], "removing": []}
    assert [row["partition"] for row in told] == [0, 1]
    assert all(each.items() <= row.items() for row in told)
    until(lambda: described(cluster, name)[0]["lag"] == {"1": 0, "3": 0}, "followers without a lag")
    lines = cluster("cluster describe", "-t", name).lines
    assert lines[0].split() == ["ID", "ADDRESS", "RACK", "STATE", "LEADS", "REPLICAS"]
    assert lines[-2].split()[:3] == [name, "0", "2"] and lines[-2].split()[-2:] == ["1:0,3:0", "-"]


def test_a_broker_that_is_down_is_shown_with_what_lacks_it_and_leads_again_when_asked(
    cluster: Oncelog, brokers: Server
) -> None:
    name = made(cluster, "missed", 3, 1, 2)
    rest = others(brokers, 3)
    brokers.kill(3)
    try:
        until(lambda: described(rest, name)[0]["in_sync"] == [1, 2], "an in-sync set without the broker")
        told = rest("cluster describe", "-J").json
        assert [each["state"] for each in told["brokers"]] == ["up", "up", "down", "up"]
        assert told["counts"]["under_replicated"] >= 2 and told["counts"]["without_leader"] == 0
        (row,) = (each for each in told["partitions"] if (each["topic"], each["partition"]) == (name, 1))
        assert (row["leader"], row["lag"]["3"]) == (1, None)
        assert (
            "Broker 3, which is preferred, is not up or not in sync." in rest.run("cluster elect", "-t", name).refusal
        )
        assert (
            "start it again, or take them from it with `oncelog cluster retire 3`" in rest.run("cluster spread").refusal
        )
    finally:
        brokers.start(3)
    until(lambda: described(cluster, name)[0]["in_sync"] == [3, 1, 2], "the broker in sync again")
    until(lambda: described(cluster, name)[1]["in_sync"] == [3, 1, 2], "the broker in sync again")
    led = [{"topic": name, "partition": index, "leader": 3} for index in (0, 1)]
    assert cluster("cluster elect", "-t", name, "-J").json == led
    assert cluster("cluster elect", "-t", name, "-J").json == []


def test_partitions_move_to_named_brokers_and_are_spread_over_all(cluster: Oncelog) -> None:
    name = made(cluster, "moved", 1, 2, partitions=4)
    cluster("produce", "-t", name, "-p", "3", stdin=b"a\nb\n")
    planned = cluster("cluster spread", "-t", name, "--dry-run", "-J").json
    assert planned and all(row["from"] == [1, 2] for row in planned)
    assert all(row["replicas"] == [1, 2] for row in described(cluster, name))
    assert cluster("cluster spread", "-t", name, "--wait", "-J").json == planned
    told = described(cluster, name)
    assert sorted(broker for row in told for broker in row["replicas"]) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert sorted(row["replicas"][0] for row in told) == [1, 2, 3, 4]
    assert cluster("cluster spread", "-t", name, "-J").json == []
    assert cluster.consumed(name, "-p", "3") == ["a", "b"]
    cluster("cluster reassign", "-t", name, "-p", "3", "--to", "4,2,1", "--wait")
    assert [row["replicas"] for row in described(cluster, name)][3] == [4, 2, 1]


def test_a_move_that_has_not_ended_is_shown_and_may_be_taken_back(cluster: Oncelog, brokers: Server) -> None:
    name = made(cluster, "kept", 1, 2, partitions=1)
    brokers.pause(4)  # so it copies nothing, and counts as up for some seconds
    rest = Oncelog(others(brokers, 4).servers)
    try:
        rest("cluster reassign", "-t", name, "--to", "4,1")
        told = described(rest, name)[0]
        assert (told["adding"], told["removing"]) == ([4], [2])
        assert rest("cluster reassign", "-t", name, "--cancel", "-J").json == [{"topic": name, "partition": 0}]
        until(lambda: described(rest, name)[0]["replicas"] == [1, 2], "the replicas from before")
        first = brokers.bootstrap_servers.split(",")[3]  # of a broker that does not answer
        assert Oncelog(f"{first},{rest.servers}")("cluster describe", "-J").json["counts"]["moving"] == 0
    finally:
        brokers.resume(4)


def test_a_broker_is_retired_stopped_and_forgotten_and_may_come_back(cluster: Oncelog, brokers: Server) -> None:
    name = made(cluster, "retired", 4, 1, 2)
    cluster("produce", "-t", name, "-p", "0", stdin=b"a\nb\n")
    planned = cluster("cluster retire", "4", "--dry-run", "-J").json
    mine = [row for row in planned if row["topic"] == name]
    assert mine == [{"topic": name, "partition": index, "from": [4, 1, 2], "to": [3, 1, 2]} for index in (0, 1)]
    said = cluster("cluster retire", "4", "-J")
    assert said.json == planned
    assert said.err.splitlines()[-1] == (
        "broker 4 has nothing any more: stop it, and give this command again to have it forgotten"
    )
    assert cluster("cluster describe", "-J").json["brokers"][3].items() >= {"state": "up", "replicas": 0}.items()

    brokers.stop(4)
    rest = others(brokers, 4)
    try:
        until(lambda: rest("cluster describe", "-J").json["brokers"][3]["state"] == "down", "that broker 4 is down")
        said = rest("cluster retire", "4", "-J")
        assert (said.json, said.err) == ([], "broker 4 is forgotten\n")
        until(lambda: len(rest("cluster describe", "-J").json["brokers"]) == 3, "a cluster of three")
        assert rest.run("cluster retire", "4").refusal == "there is no broker 4: the brokers are 1, 2, 3"
        assert rest.consumed(name, "-p", "0") == ["a", "b"]
        words = "has 3 replicas, and there is no other broker for the one at 3: add a broker, or give it fewer"
        assert words in rest.run("cluster retire", "3").refusal
    finally:
        brokers.start(4)
    until(lambda: len(cluster("cluster describe", "-J").json["brokers"]) == 4, "broker 4 again")
    cluster("cluster spread", "--wait")
    assert cluster("cluster describe", "-J").json["brokers"][3]["replicas"] > 0


def test_what_is_up_or_has_something_is_not_forgotten(cluster: Oncelog, brokers: Server) -> None:
    made(cluster, "had", 4, 1)
    rest = others(brokers, 4)

    def refusal(node: int) -> tuple[int, str | None]:
        with RawConnection(rest.servers.split(",")[0]) as raw:
            answer = raw.call("unregister_broker", 0, broker_id=node)
        return int(answer.error_code), answer.error_message

    assert refusal(4) == (42, "Broker 4 is up: stop it first.")
    assert refusal(9) == (102, "There is no broker 9.")
    brokers.kill(4)
    try:
        until(lambda: refusal(4)[1] != "Broker 4 is up: stop it first.", "that broker 4 is down")
        code, message = refusal(4)
        assert code == 42 and message is not None
        assert message.startswith("Broker 4 is to have ") and message.endswith(": move that to other brokers first.")
    finally:
        brokers.start(4)


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("retire 7", 1, "there is no broker 7: the brokers are 1"),
        ("elect -p 1", 2, "-p is a partition of a topic: name that with -t"),
        ("elect -t nosuch", 1, "there is no topic nosuch"),
        ("reassign -t t1", 2, "where to? --to 1,2,3 names brokers, and --cancel takes a move back"),
        ("reassign -t t1 --to 1 --cancel", 2, "where to?"),
        ("reassign --to 1,2", 2, "which topic? -t names it"),
        ("reassign -t t1 --to 1,1", 2, "--to 1,1: expected ids of brokers, each once, such as 1,2,3"),
        ("reassign -t t1 --to one", 2, "--to one: expected ids of brokers"),
        ("reassign -t {topic} --to 9", 1, "there is no broker 9: the brokers are 1"),
        ("reassign -t {topic} --to 9 --dry-run", 1, "there is no broker 9: the brokers are 1"),
        ("describe -t nosuch", 1, "there is no topic nosuch"),
    ],
)
def test_a_refusal_says_what_to_do(oncelog: Oncelog, topic: str, command: str, code: int, words: str) -> None:
    first, *options = command.replace("{topic}", topic).split()
    said = oncelog.run(f"cluster {first}", *options)
    assert said.code == code and words.replace("{topic}", topic) in said.refusal, said


def test_only_a_follower_of_whom_the_debugging_id_asks_says_where_its_log_ends(
    cluster: Oncelog, brokers: Server
) -> None:
    name = made(cluster, "asked", 1, 2)
    cluster("produce", "-t", name, "-p", "0", stdin=b"a\nb\n")
    addresses = brokers.bootstrap_servers.split(",")

    def end(broker: int, replica_id: int) -> tuple[int, int]:
        partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
        with RawConnection(addresses[broker - 1]) as raw:
            asked = [{"name": name, "partitions": partitions}]
            answer = raw.call("list_offsets", 9, replica_id=replica_id, isolation_level=0, topics=asked)
        found = answer.topics[0].partitions[0]
        return int(found.error_code), int(found.offset)

    until(lambda: end(2, -2) == (0, 2), "the follower's end")
    assert (end(1, -1), end(1, -2)) == ((0, 2), (0, 2))
    assert end(2, -1)[0] == end(3, -2)[0] == 6  # NOT_LEADER_OR_FOLLOWER
