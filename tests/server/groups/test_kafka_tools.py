"""`__consumer_offsets` and the groups as Kafka's own command line tools see them."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from oncelog.embedded import Server
from tests.peers.jars import MissingPeer, kafka_jars, kafka_java, need_or_skip
from tests.raw import RawConnection
from tests.server.groups.questions import commit, join, part, sync

pytestmark = pytest.mark.peers
TOOLS = "org.apache.kafka.tools.consumer"
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1")
NOTHING_ASSIGNED = b"\0\0\0\0\0\0\xff\xff\xff\xff"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic("read", 2)
        member = join(raw, "members", version=5, group_instance_id="one").member_id
        shares = [{"member_id": member, "assignment": NOTHING_ASSIGNED}]
        sync(raw, "members", member, 1, group_instance_id="one", assignments=shares)
        topics = [{"name": "read", "partitions": [part(0, 5, "about"), part(1, 6)]}]
        assert commit(raw, "simple", [], topics=topics) == [(0, "none"), (1, "none")]
        yield server


def tool(name: str, *arguments: str) -> str:
    done = subprocess.run(
        kafka_java(name, *arguments, jvm=JVM), capture_output=True, text=True, timeout=120, check=False
    )
    assert "Exception" not in done.stderr.replace("TimeoutException", ""), done.stderr
    return done.stdout


def stored(server: Server, formatter: str, records: int) -> list[dict[str, object]]:
    out = tool(
        f"{TOOLS}.ConsoleConsumer",
        *("--bootstrap-server", server.bootstrap_servers, "--topic", "__consumer_offsets", "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(records), "--timeout-ms", "20000"),
        *("--formatter", f"{TOOLS}.{formatter}"),
    )
    return [json.loads("{" + each) for each in out.strip().split('{"key"')[1:] for each in ['"key"' + each]]


def test_the_offsets_formatter_reads_our_offsets(server: Server) -> None:
    found = stored(server, "OffsetsMessageFormatter", 3)
    keys = [each["key"]["data"] for each in found]  # type: ignore[index]
    values = [each["value"]["data"] for each in found]  # type: ignore[index]
    assert keys == [{"group": "simple", "topic": "read", "partition": index} for index in (0, 1)]
    assert [(each["offset"], each["metadata"]) for each in values] == [(5, "about"), (6, "m")]


def test_the_group_formatter_reads_our_groups(server: Server) -> None:
    (found,) = stored(server, "GroupMetadataMessageFormatter", 1)
    group = found["value"]["data"]  # type: ignore[index]
    assert found["key"]["data"] == {"group": "members"}  # type: ignore[index]
    assert (group["protocolType"], group["generation"], group["protocol"]) == ("consumer", 1, "range")
    assert [(member["groupInstanceId"], member["clientId"]) for member in group["members"]] == [("one", "raw")]


def test_the_group_tool_describes_resets_and_deletes(server: Server) -> None:
    address = ("--bootstrap-server", server.bootstrap_servers)
    members = tool(f"{TOOLS}.group.ConsumerGroupCommand", *address, "--describe", "--group", "members", "--members")
    assert "/127.0.0.1" in members
    simple = ("--group", "simple")
    reset = ("--topic", "read:0", "--reset-offsets", "--to-earliest", "--execute")
    assert "simple" in tool(f"{TOOLS}.group.ConsumerGroupCommand", *address, *simple, *reset)
    group = server.broker.groups
    assert (group.committed("simple", "read", 0) or [None])[0] == 0
    assert "successful" in tool(f"{TOOLS}.group.ConsumerGroupCommand", *address, *simple, "--delete")
    assert group.committed("simple", "read", 1) is None
