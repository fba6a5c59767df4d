"""Topics and their settings."""

from typing import Any

from tests.peers.questions.asking import QUESTIONS, Question, question, settled
from tests.peers.questions.fetch import fetched, filled, offset_answer
from tests.raw import RawConnection

# --- topics ---------------------------------------------------------------------------------------------------------


def creation(c: RawConnection, topic: dict[str, Any], validate_only: bool = False) -> str:
    answer = c.call("create_topics", 5, topics=[topic], timeout=10_000, validate_only=validate_only)
    name: str = answer.topics[0].error_code.name
    return name


@question
def create_a_topic_twice(c: RawConnection, topic: str) -> object:
    return c.create_topic(topic).name, c.create_topic(topic).name


@question
def create_a_topic_twice_in_one_request(c: RawConnection, topic: str) -> object:
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    answer = c.call("create_topics", 5, topics=[wanted, wanted], timeout=10_000)
    return sorted({t.error_code.name for t in answer.topics})


@question
def create_topics_with_illegal_names(c: RawConnection, topic: str) -> object:
    names = ["a b", "", ".", "..", "x" * 250, "x/y", "é", "a\x00b"]
    return [creation(c, {"name": name, "num_partitions": 1, "replication_factor": 1}) for name in names]


@question
def create_topics_whose_names_collide(c: RawConnection, topic: str) -> object:
    first, second = topic.replace("-", "."), topic.replace("-", "_")
    one = {"num_partitions": 1, "replication_factor": 1}
    return creation(c, {"name": first, **one}), creation(c, {"name": second, **one})


@question
def create_a_topic_with_the_longest_name(c: RawConnection, topic: str) -> object:
    return creation(c, {"name": (topic + "x" * 249)[:249], "num_partitions": 1, "replication_factor": 1})


@question
def create_topics_with_wrong_numbers(c: RawConnection, topic: str) -> object:
    numbers = [(0, 1), (-2, 1), (1, 0), (1, 3), (1, -2), (-1, -1)]
    return [
        creation(c, {"name": f"{topic}-{i}", "num_partitions": partitions, "replication_factor": replicas})
        for i, (partitions, replicas) in enumerate(numbers)
    ]


@question
def create_a_topic_with_unknown_and_wrong_settings(c: RawConnection, topic: str) -> object:
    settings = [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("segment.bytes", "-5"),
        ("compression.type", "rar"),
    ]
    one = {"num_partitions": 1, "replication_factor": 1}
    return [
        creation(c, {"name": f"{topic}-{i}", **one, "configs": [{"name": key, "value": value}]})
        for i, (key, value) in enumerate(settings)
    ]


@question
def create_a_topic_that_compresses_on_the_broker(c: RawConnection, topic: str) -> object:
    one = {"num_partitions": 1, "replication_factor": 1}
    return creation(c, {"name": topic, **one, "configs": [{"name": "compression.type", "value": "zstd"}]})


@question
def create_a_topic_of_small_segments(c: RawConnection, topic: str) -> object:
    one = {"num_partitions": 1, "replication_factor": 1}
    return creation(c, {"name": topic, **one, "configs": [{"name": "segment.bytes", "value": "100000"}]})


@question
def create_a_topic_only_to_validate(c: RawConnection, topic: str) -> object:
    said = creation(c, {"name": topic, "num_partitions": 1, "replication_factor": 1}, validate_only=True)
    answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    return said, answer.topics[0].error_code.name


@question
def create_a_topic_by_assignment(c: RawConnection, topic: str) -> object:
    here = c.call("metadata", 9, topics=[]).brokers[0].node_id
    both = {"num_partitions": -1, "replication_factor": -1}
    assigned = [{"partition_index": i, "broker_ids": [here]} for i in range(2)]
    first = creation(c, {"name": topic, **both, "assignments": assigned})
    c.await_leaders(topic, [0, 1])
    strange = [{"partition_index": 0, "broker_ids": [here + 7]}]
    return first, creation(c, {"name": topic + "-2", **both, "assignments": strange})


@question
def delete_an_unknown_topic(c: RawConnection, topic: str) -> object:
    return c.delete_topic(topic).name


@question
def delete_a_topic(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    said = c.delete_topic(topic).name

    def seen() -> object:
        answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
        return answer.topics[0].error_code.name

    return said, settled(seen, "unknown_topic_or_partition")


@question
def create_partitions(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    errors = []
    for name, count in ((topic, 4), (topic, 4), (topic, 1), (topic, 0), (topic + "-absent", 3)):
        wanted = [{"name": name, "count": count, "assignments": None}]
        answer = c.call("create_partitions", 1, topics=wanted, timeout=10_000, validate_only=False)
        errors.append(answer.results[0].error_code.name)
    c.await_leaders(topic, range(4))
    return errors


@question
def delete_records(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    answers = []
    for partition, offset in ((0, 4), (0, 2), (0, 99), (0, -5), (7, 1), (0, -1)):
        topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
        part = c.call("delete_records", 2, topics=topics, timeout=10_000).topics[0].partitions[0]
        answers.append((part.error_code.name, part.low_watermark))
    return answers, fetched(c.fetch(topic, 0, 4)), offset_answer(c.offset_at(topic, 0, -2))


@question
def fetch_below_the_start_of_the_log(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 4}]}]
    c.call("delete_records", 2, topics=topics, timeout=10_000)
    return fetched(c.fetch(topic, 0, 3)), fetched(c.fetch(topic, 0, 4))


# --- settings of topics ---------------------------------------------------------------------------------------------

TOPIC = 2
BROKER = 4


def described(c: RawConnection, kind: int, name: str, keys: list[str] | None) -> object:
    wanted = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    result = c.call("describe_configs", 4, resources=wanted).results[0]
    values = {one.name: one.value for one in result.configs}
    return result.error_code.name, values if keys else len(values) > 10


@question
def describe_the_settings_of_a_topic(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs={"retention.ms": "12345"})
    keys = ["retention.ms", "cleanup.policy", "segment.bytes", "message.timestamp.type", "compression.type", "no.such"]
    return described(c, TOPIC, topic, keys), described(c, TOPIC, topic, None)


@question
def the_defaults_of_a_topic(c: RawConnection, topic: str) -> object:
    """Every name there is, with its type and value."""
    c.create_topic(topic)
    wanted = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}]
    result = c.call("describe_configs", 4, resources=wanted).results[0]
    return sorted((one.name, int(one.config_type), one.value) for one in result.configs)


NUMBERS = [str(each) for each in (*range(-3, 5), 9, 10, 17, 18, 22, 23, 2**20, 2**31 - 1, 2**31, 2**63 - 1, 2**63)]
ODD = ["", " 7 ", "+7", "0x10", "1.5", "x", "true", "FALSE", "yes"]
WORDS = {
    "cleanup.policy": ["delete", "compact", "delete,compact", "Delete", "none", "delete, compact", ",", "compact,"],
    "compression.type": ["zstd", "lz4", "snappy", "gzip", "producer", "uncompressed", "none", "ZSTD"],
    "message.timestamp.type": ["CreateTime", "LogAppendTime", "createtime"],
    "min.cleanable.dirty.ratio": ["0.0", "1.0", "1.1", "-0.1", "1e-3"],
    "leader.replication.throttled.replicas": ["*", "0:1", "0:1,1:2", "none"],
    "follower.replication.throttled.replicas": ["*", "0:1", "0:1,1:2", "none"],
}
SMALL_SEGMENTS = ("17", "18", "22", "23")  # see `create a topic of small segments`
SETTINGS_OF_TOPICS = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
    index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms
    max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms message.timestamp.before.max.ms
    message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
    remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
    segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    unclean.leader.election.enable message.format.version no.such
"""


def _values_of(name: str) -> Question:
    def ask(c: RawConnection, topic: str) -> object:
        """By the values that a topic might be made with, what each is answered."""
        answers = {}
        for value in [*ODD, *NUMBERS, *WORDS.get(name, ())]:
            if name == "segment.bytes" and value in SMALL_SEGMENTS:
                continue
            wanted: dict[str, Any] = {"name": topic, "configs": [{"name": name, "value": value}]}
            wanted |= {"num_partitions": 1, "replication_factor": 1, "assignments": []}
            answer = c.call("create_topics", 7, topics=[wanted], timeout=5000, validate_only=True)
            answers[value] = answer.topics[0].error_code.name
        return answers

    return ask


for _name in SETTINGS_OF_TOPICS.split():
    QUESTIONS[f"values of {_name}"] = _values_of(_name)


@question
def describe_the_settings_of_an_unknown_topic(c: RawConnection, topic: str) -> object:
    return described(c, TOPIC, topic, ["retention.ms"])


def altered(c: RawConnection, topic: str, key: str, value: str | None, operation: int) -> str:
    change = {"name": key, "config_operation": operation, "value": value}
    wanted = [{"resource_type": TOPIC, "resource_name": topic, "configs": [change]}]
    answer = c.call("incremental_alter_configs", 1, resources=wanted, validate_only=False)
    name: str = answer.responses[0].error_code.name
    return name


@question
def change_settings_step_by_step(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return [
        altered(c, topic, "retention.ms", "777", 0),
        altered(c, topic, "cleanup.policy", "compact", 2),
        altered(c, topic, "cleanup.policy", "delete", 3),
        altered(c, topic, "retention.ms", None, 1),
        altered(c, topic, "no.such.setting", "1", 0),
        altered(c, topic, "retention.ms", "soon", 0),
        altered(c, topic, "retention.ms", "1", 2),
        altered(c, topic + "-absent", "retention.ms", "1", 0),
        altered(c, topic, "compression.type", "gzip", 0),
        altered(c, topic, "retention.ms", "1", 9),
    ]


@question
def a_changed_setting_is_seen(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    altered(c, topic, "retention.ms", "777", 0)
    altered(c, topic, "cleanup.policy", "compact", 2)
    wanted = ("none", {"retention.ms": "777", "cleanup.policy": "delete,compact"})
    return settled(lambda: described(c, TOPIC, topic, ["retention.ms", "cleanup.policy"]), wanted)


@question
def replace_all_settings(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs={"retention.ms": "5000", "segment.bytes": "2000000"})
    wanted = [{"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "retention.ms", "value": "6000"}]}]
    said = c.call("alter_configs", 1, resources=wanted).responses[0].error_code.name
    settings = ("none", {"retention.ms": "6000", "segment.bytes": "1073741824"})
    return said, settled(lambda: described(c, TOPIC, topic, ["retention.ms", "segment.bytes"]), settings)
