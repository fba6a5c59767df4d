"""`oncelog topics`, and what all commands that tell facts have in common."""

import pytest

from tests.cli.running import Oncelog


def test_topics_are_listed_also_without_a_command_and_in_kcats_way(oncelog: Oncelog, topic: str) -> None:
    row = {"topic": topic, "partitions": 3, "replicas": 1, "error": None}
    assert row in oncelog("topics list", "-J").json
    assert row in oncelog("topics", "--format", "json").json
    assert oncelog("topics", "-t", topic, "-J").json == [row]
    assert oncelog("-L", "-t", topic).lines == ["TOPIC       PARTITIONS  REPLICAS", f"{topic}           3         1"]


def test_a_topic_is_made_described_altered_and_removed(oncelog: Oncelog, topic: str) -> None:
    name = f"{topic}-made"
    oncelog("topics create", name, "-p", "2", "-c", "retention.ms=60000", "-c", "cleanup.policy=compact")
    oncelog("produce", "-t", name, "-p", "1", "-k", "k", stdin=b"a\nb\n")
    (told,) = oncelog("topics describe", name, "-J").json
    assert told["configs"] == {"cleanup.policy": "compact", "retention.ms": "60000"}
    both = {"leader": 1, "replicas": [1], "in_sync": [1], "start": 0}
    assert told["partitions"] == [{"partition": 0, **both, "end": 0}, {"partition": 1, **both, "end": 2}]

    oncelog("topics alter", name, "-p", "5", "-c", "retention.ms=70000", "-u", "cleanup.policy")
    (told,) = oncelog("topics describe", name, "-J").json
    assert told["configs"] == {"retention.ms": "70000"}
    assert len(told["partitions"]) == 5
    assert "segment.bytes" in oncelog("topics describe", name, "-J", "--all").json[0]["configs"]

    oncelog("topics delete", name)
    assert name not in [each["topic"] for each in oncelog("topics", "-J").json]


def test_what_is_there_already_or_gone_already_may_be_no_failure(oncelog: Oncelog, topic: str) -> None:
    assert f"{topic}: " in oncelog.run("topics create", topic).refusal
    oncelog("topics create", topic, f"{topic}-too", "--if-not-exists")
    oncelog("topics delete", f"{topic}-too")
    assert "there is no topic" in oncelog.run("topics delete", f"{topic}-too").refusal
    oncelog("topics delete", "--if-exists", f"{topic}-too")


def test_a_table_has_columns_under_each_other(oncelog: Oncelog, topic: str) -> None:
    oncelog("topics alter", topic, "-c", "retention.ms=60000")
    assert oncelog("topics describe", topic).lines == [
        "TOPIC       PARTITION  LEADER  REPLICAS  IN SYNC  START  END",
        f"{topic}          0       1  1         1            0    0",
        f"{topic}          1       1  1         1            0    0",
        f"{topic}          2       1  1         1            0    0",
        "",
        "TOPIC       SETTING       VALUE  SOURCE",
        f"{topic}  retention.ms  60000  dynamic_topic_config",
    ]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("topics describe {topic}x", 1, "there is no topic {topic}x; the nearest known one is {topic}"),
        ("topics delete {topic}x", 1, "there is no topic {topic}x"),
        ("topics alter {topic}", 2, "nothing to alter: -p N, -c NAME=VALUE or -u NAME"),
        ("topics alter {topic} -p 1", 1, "{topic}: "),
        ("topics alter {topic} -c retention.mss=1", 1, "{topic}: "),
        ("topics create {topic}y -c oops", 2, "-c oops: expected NAME=VALUE"),
        ("topics create", 2, "Missing argument 'TOPIC...'"),
        ("topics lst", 2, "No such command 'lst'; the nearest known one is list"),
        ("groups lag g1", 2, "No such command 'lag'; the nearest known one is describe"),
        ("consumer", 2, "No such command 'consumer'; the nearest known one is consume"),
        ("qwxz", 2, "No such command 'qwxz' (see"),
        ("topics -b 127.0.0.1:1", 1, "start a server with `oncelog serve`"),
        ("topics -X sasl.mechanism=PLAIN -X security.protocol=sasl_plaintext", 2, "sasl.username and sasl.password"),
        ("topics --format xml", 2, "'xml' is not one of 'table', 'json', 'yaml'"),
        ("topic", 2, "No such command 'topic'"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    oncelog: Oncelog, topic: str, command: str, code: int, words: str
) -> None:
    first, *options = command.replace("{topic}", topic).split()
    has_command = bool(options) and not options[0].startswith("-")
    said = oncelog.run(f"{first} {options[0]}" if has_command else first, *options[has_command:])
    assert words.replace("{topic}", topic) in said.refusal
    assert said.code == code


@pytest.mark.parametrize("command", ["topics create", "topics alter"])
@pytest.mark.parametrize("count", ["0", "-1", "99999999999"])
def test_how_many_partitions_a_topic_may_have_is_said(oncelog: Oncelog, command: str, count: str) -> None:
    said = oncelog.run(command, "t", "--partitions", count)
    assert said.code == 2
    assert f"{count}: a topic has 1 to 2147483647 partitions" in said.err


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "0"])
def test_a_time_that_is_none_is_wrong_usage(oncelog: Oncelog, seconds: str) -> None:
    said = oncelog.run("topics list", "-m", seconds)
    assert said.code == 2 and "-m" in said.err
