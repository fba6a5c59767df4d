"""The Java client, through the command line tools that come with Apache Kafka."""

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.peers.jars import MissingPeer, kafka_java, need_or_skip
from tests.peers.server_process import ServerProcess
from tests.peers.stored import stored_codecs

TOOL_SECONDS = 90
TOOLS = "org.apache.kafka.tools"
Tool = Callable[..., str]


@pytest.fixture
def tool(server: ServerProcess) -> Tool:
    """Runs a tool against the server and returns what it printed."""

    def run(name: str, *arguments: str, typed: str = "") -> str:
        try:
            command = kafka_java(name, "--bootstrap-server", server.bootstrap_servers, *arguments)
        except MissingPeer as missing:
            need_or_skip(missing)
        done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    return run


@pytest.fixture
def made(tool: Tool, topic: str) -> str:
    tool(f"{TOOLS}.TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
    return topic


def say(tool: Tool, topic: str, lines: list[str], *more: str) -> None:
    tool(f"{TOOLS}.ConsoleProducer", "--topic", topic, *more, typed="".join(f"{line}\n" for line in lines))


def hear(tool: Tool, topic: str, count: int, *more: str) -> list[str]:
    limits = ("--max-messages", str(count), "--timeout-ms", "30000")
    said = tool(f"{TOOLS}.consumer.ConsoleConsumer", "--topic", topic, *limits, *more)
    return sorted(said.splitlines())


@pytest.mark.thorough
def test_topics_are_listed_described_widened_and_deleted(tool: Tool, made: str) -> None:
    command = f"{TOOLS}.TopicCommand"
    assert made in tool(command, "--list").splitlines()
    tool(command, "--alter", "--topic", made, "--partitions", "4")
    described = tool(command, "--describe", "--topic", made)
    assert "PartitionCount: 4" in described
    assert described.count("Leader: ") == 4
    tool(command, "--delete", "--topic", made)
    assert made not in tool(command, "--list").splitlines()


@pytest.mark.thorough
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_typed_is_stored_in_its_codec_and_comes_out(
    server: ServerProcess, tool: Tool, topic: str, codec: str
) -> None:
    tool(f"{TOOLS}.TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    lines = [f"line {i} " + "and so on " * 20 for i in range(50)]
    say(tool, topic, lines, "--compression-codec", codec)
    assert stored_codecs(server, topic) == {codec}
    assert hear(tool, topic, 50, "--from-beginning") == sorted(lines)


@pytest.mark.thorough
def test_a_group_is_consumed_described_reset_and_deleted(tool: Tool, made: str) -> None:
    say(tool, made, [f"line {i}" for i in range(20)])
    assert len(hear(tool, made, 20, "--group", made, "--from-beginning")) == 20
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    assert made in tool(command, "--list").splitlines()
    described = tool(command, "--describe", "--group", made)
    rows = [line.split() for line in described.splitlines() if line.startswith(made)]
    assert sum(int(row[3]) for row in rows) == 20  # CURRENT-OFFSET
    assert sum(int(row[5]) for row in rows) == 0  # LAG
    tool(command, "--group", made, "--topic", made, "--reset-offsets", "--to-earliest", "--execute")
    assert len(hear(tool, made, 20, "--group", made)) == 20
    assert "Empty" in tool(command, "--describe", "--group", made, "--state")
    tool(command, "--delete-offsets", "--group", made, "--topic", made)
    tool(command, "--delete", "--group", made)
    assert made not in tool(command, "--list").splitlines()


@pytest.mark.thorough
def test_settings_are_changed_and_described(tool: Tool, made: str) -> None:
    named = ("--entity-type", "topics", "--entity-name", made)
    tool("kafka.admin.ConfigCommand", *named, "--alter", "--add-config", "retention.ms=4000,cleanup.policy=compact")
    described = tool("kafka.admin.ConfigCommand", *named, "--describe")
    assert "retention.ms=4000" in described
    assert "cleanup.policy=compact" in described
    tool("kafka.admin.ConfigCommand", *named, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("kafka.admin.ConfigCommand", *named, "--describe")


def test_settings_of_the_broker_are_described(tool: Tool) -> None:
    said = tool("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    assert "message.max.bytes=1048588" in said


@pytest.mark.thorough
def test_what_consoles_ask_about_groups_metrics_and_the_quorum_is_answered(tool: Tool) -> None:
    status = tool(f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    assert "LeaderId:               1\n" in status and "CurrentVoters" in status
    described = ("kafka.admin.ConfigCommand", "--describe", "--all", "--entity-type")
    assert "consumer.session.timeout.ms=45000" in tool(*described, "groups", "--entity-name", "readers")
    named = ("kafka.admin.ConfigCommand", "--entity-type", "groups", "--entity-name", "readers", "--alter")
    tool(*named, "--add-config", "consumer.session.timeout.ms=50000")
    said = tool(*described, "groups", "--entity-name", "readers")
    assert "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:" in said
    tool(*named, "--delete-config", "consumer.session.timeout.ms")
    assert "interval.ms=300000" in tool(*described, "client-metrics", "--entity-name", "some")
    tool(f"{TOOLS}.ClientMetricsCommand", "--list")


def test_offsets_are_told_by_every_kind_of_time(tool: Tool, made: str) -> None:
    say(tool, made, [f"line {i}" for i in range(10)])
    for time, wanted in (("earliest", 0), ("latest", 10), ("-1", 10)):
        said = tool(f"{TOOLS}.GetOffsetShell", "--topic", made, "--time", time)
        assert sum(int(line.split(":")[2]) for line in said.splitlines()) == wanted
    assert tool(f"{TOOLS}.GetOffsetShell", "--topic", made, "--time", "max-timestamp")


@pytest.mark.thorough
def test_records_are_deleted(tool: Tool, made: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    say(tool, made, [f"line {i}" for i in range(10)])
    wanted = {"partitions": [{"topic": made, "partition": p, "offset": -1} for p in (0, 1)], "version": 1}
    path = tmp_path_factory.mktemp("delete") / "wanted.json"
    path.write_text(json.dumps(wanted))
    tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(path))
    said = tool(f"{TOOLS}.GetOffsetShell", "--topic", made, "--time", "earliest")
    assert sum(int(line.split(":")[2]) for line in said.splitlines()) == 10


def test_versions_are_told(tool: Tool) -> None:
    said = tool(f"{TOOLS}.BrokerApiVersionsCommand")
    assert "Produce(0): " in said
    assert "UNSUPPORTED" in said  # what is not served is not pretended


@pytest.mark.thorough
def test_the_perf_tools_run(server: ServerProcess, tool: Tool, made: str) -> None:
    count = 20_000
    produced = subprocess.run(
        kafka_java(
            f"{TOOLS}.ProducerPerformance",
            *("--topic", made, "--num-records", str(count), "--record-size", "100", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={server.bootstrap_servers}", "enable.idempotence=true"),
        ),
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    assert f"{count} records sent" in produced.stdout, produced.stdout + produced.stderr
    consumed = tool(f"{TOOLS}.ConsumerPerformance", "--topic", made, "--num-records", str(count))
    assert int(float(consumed.strip().splitlines()[-1].split(",")[4])) >= count
