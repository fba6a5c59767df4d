"""What web consoles and tools that manage a cluster ask for: configs of groups and of metrics, the quorum, moves to
where partitions are, access rules where there is no authorizer."""

from datetime import timedelta
from typing import Any

from tests.peers.questions.asking import QUESTIONS, Question, question, settled
from tests.raw import RawConnection

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
OF_GROUP = 8  # where a value comes from
SESSION, HEARTBEAT, ISOLATION = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "share.isolation.level"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"  # its default is another one here
WORDED = (ISOLATION, "share.auto.offset.reset", "share.renew.acknowledge.enable")
GROUPS_CONFIGS = (
    *(f"{kind}.session.timeout.ms" for kind in ("consumer", "share", "streams")),
    *(f"{kind}.heartbeat.interval.ms" for kind in ("consumer", "share", "streams")),
    *(f"{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams")),
    *(f"share.{each}" for each in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms")),
    *("streams.initial.rebalance.delay.ms", "streams.num.standby.replicas"),
    *WORDED,
)
AROUND = (0, 1, 2, 5, 10, 100, 1_000, 5_000, 10_000, 15_000, 30_000, 45_000, 60_000, 2**31 - 1)
NUMBERS = sorted({"", " ", "x", "1.5", " 5000 ", *(str(each + by) for each in AROUND for by in (-1, 0, 1))})
DURATIONS = (
    "P1D",
    "PT1H",
    "PT1H30M",
    "P1DT2H3M4.5S",
    "-PT1H",
    "PT-1H",
    "P",
    "PT",
    "1h",
    "P1M",
    "P1Y",
    "P1W",
    "PT0S",
    "",
)
WORDS = (
    *("earliest", "latest", "EARLIEST", "Latest", "none", "", " ", "true", "TRUE", " true ", "false", "yes", "0"),
    *("read_committed", "read_uncommitted", "READ_COMMITTED", " read_committed "),
    *(f"by_duration:{each}" for each in DURATIONS),
    *(
        "by_duration",
        "BY_DURATION:PT1H",
        "by_duration:pt1h",
        "by_duration:PT1.123456789S",
        "by_duration:PT1.1234567891S",
    ),
    *("by_duration:PT+1H", "by_duration:+PT1H", "by_duration:PT1.S", "by_duration:P-1DT25H", "by_duration: PT1H"),
)

# --- configs --------------------------------------------------------------------------------------------------------


def configs_of(c: RawConnection, kind: int, name: str, keys: list[str] | None = None) -> object:
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    (result,) = c.call("describe_configs", 4, resources=asked, include_synonyms=True).results
    found = [
        (each.name, each.value, int(each.config_type), each.config_source, [each.name for each in each.synonyms])
        for each in result.configs
    ]
    return result.error_code.name, result.resource_type, result.resource_name == name, sorted(found)


def altered(c: RawConnection, kind: int, name: str, *changes: tuple[str, int, str | None]) -> list[str]:
    """By both requests that there are for it; by the older one only where everything is set."""
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    asked: dict[str, Any] = {"resource_type": kind, "resource_name": name, "configs": configs}
    answers = c.call("incremental_alter_configs", 1, resources=[asked], validate_only=True).responses
    if all(how == 0 for _, how, _ in changes):
        asked = asked | {"configs": [{"name": key, "value": value} for key, _, value in changes]}
        answers += c.call("alter_configs", 2, resources=[asked], validate_only=True).responses
    return [each.error_code.name for each in answers]


@question
def describe_the_configs_of_a_group(c: RawConnection, topic: str) -> object:
    names = [each for each in GROUPS_CONFIGS if each != ASSIGNMENT_INTERVAL]
    some = ["share.session.timeout.ms", "no.such"]
    return configs_of(c, GROUP, topic, names), configs_of(c, GROUP, topic, some), configs_of(c, GROUP, "")


@question
def describe_how_often_a_group_shares_anew(c: RawConnection, topic: str) -> object:
    (result,) = c.call("describe_configs", 4, resources=[described(topic, [ASSIGNMENT_INTERVAL])]).results
    return [result.error_code.name, [each.value for each in result.configs]]


@question
def the_names_of_a_groups_configs(c: RawConnection, topic: str) -> object:
    (result,) = c.call("describe_configs", 4, resources=[described(topic, None)], include_synonyms=True).results
    return sorted(each.name for each in result.configs), {each.read_only for each in result.configs}


def described(name: str, keys: list[str] | None) -> dict[str, Any]:
    return {"resource_type": GROUP, "resource_name": name, "configuration_keys": keys}


def set_of(c: RawConnection, group: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> str:
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    asked = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    (response,) = c.call("incremental_alter_configs", 1, resources=[asked], validate_only=validate_only).responses
    return str(response.error_code.name)


def own_of(c: RawConnection, group: str) -> object:
    """What is as it was set, with all that it goes before."""
    names = [each for each in GROUPS_CONFIGS if each != ASSIGNMENT_INTERVAL]
    (result,) = c.call("describe_configs", 4, resources=[described(group, names)], include_synonyms=True).results
    return [
        (each.name, each.value, [(one.name, one.value, one.source) for one in each.synonyms])
        for each in sorted(result.configs, key=lambda each: each.name)
        if each.config_source == OF_GROUP
    ]


def is_listed(c: RawConnection, group: str) -> bool:
    answer = c.call("list_config_resources", 1, resource_types=[GROUP])
    return group in {each.resource_name for each in answer.config_resources}


def names_of(c: RawConnection, group: str) -> list[str]:
    return [name for name, *_ in own_of(c, group)]  # type: ignore[attr-defined]


@question
def set_the_configs_of_a_group(c: RawConnection, topic: str) -> object:
    told: list[object] = []

    def change(*changes: tuple[str, int, str | None], wanted: list[str]) -> None:
        told.append(set_of(c, topic, *changes))
        told.append(settled(lambda: names_of(c, topic), wanted))
        told.append(own_of(c, topic))
        told.append(settled(lambda: is_listed(c, topic), bool(wanted)))

    change((SESSION, 0, "50000"), wanted=[SESSION])
    change(
        (HEARTBEAT, 0, "6000"), ("share.isolation.level", 0, "read_committed"), wanted=[HEARTBEAT, SESSION, ISOLATION]
    )
    change((SESSION, 1, None), wanted=[HEARTBEAT, ISOLATION])
    told.append(set_of(c, topic, (SESSION, 0, "50000"), validate_only=True))
    change((HEARTBEAT, 1, None), (ISOLATION, 1, None), wanted=[])
    return told


@question
def replace_the_configs_of_a_group(c: RawConnection, topic: str) -> object:
    told: list[object] = [set_of(c, topic, (SESSION, 0, "50000")), settled(lambda: names_of(c, topic), [SESSION])]
    for wanted in ({HEARTBEAT: "7000"}, {}):
        configs = [{"name": key, "value": value} for key, value in wanted.items()]
        asked = {"resource_type": GROUP, "resource_name": topic, "configs": configs}
        (response,) = c.call("alter_configs", 2, resources=[asked], validate_only=False).responses
        told += [response.error_code.name, settled(lambda: names_of(c, topic), list(wanted))]
    return told


@question
def which_values_the_configs_of_a_group_take(c: RawConnection, topic: str) -> object:
    answers = []
    for name in GROUPS_CONFIGS:
        texts = WORDS if name in WORDED else NUMBERS
        asked = [(name, text, set_of(c, topic, (name, 0, text), validate_only=True)) for text in texts]
        answers += [(each, text) for each, text, error in asked if error == "none"]
        answers += sorted({(each, error) for each, _, error in asked})
    return answers


@question
def changes_of_a_group_that_are_none(c: RawConnection, topic: str) -> object:
    return [
        set_of(c, topic, *changes, validate_only=True)
        for changes in (
            [(SESSION, 2, "50000")],
            [(SESSION, 3, "45000")],
            [("no.such", 2, "1")],
            [("no.such", 1, None)],
            [("no.such", 0, "1")],
            [(SESSION, 0, None)],
            [(SESSION, 0, "50000"), (SESSION, 0, "50001")],
            [(SESSION, 0, "50000"), (HEARTBEAT, 0, "50001")],
            [("group.consumer.session.timeout.ms", 0, "50000")],
            [("consumer.assignor.offload.enable", 0, "true")],
        )
    ]


@question
def a_group_has_the_heartbeats_that_were_set(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    group = f"{topic}-group"

    def beat() -> object:
        joining: dict[str, Any] = {"group_id": group, "member_id": "bWVtYmVyLW51bWJlci0wMA", "member_epoch": 0}
        joining |= {"instance_id": None, "rack_id": None, "rebalance_timeout": timedelta(seconds=45)}
        joining |= {"subscribed_topic_names": [topic], "subscribed_topic_regex": None, "topic_partitions": []}
        answer = c.call("consumer_group_heartbeat", 1, **joining)
        return answer.heartbeat_interval / timedelta(milliseconds=1) if answer.error_code.name == "none" else None

    c.call("find_coordinator", 4, key_type=0, coordinator_keys=[group])  # Kafka makes a topic for it first
    first = settled(beat, 5_000, patience_s=30)
    longer = set_of(c, group, (HEARTBEAT, 0, "9000")), settled(beat, 9_000)
    common = set_of(c, group, (HEARTBEAT, 1, None)), settled(beat, 5_000)
    return first, longer, common


@question
def describe_the_configs_of_client_metrics(c: RawConnection, topic: str) -> object:
    return [configs_of(c, CLIENT_METRICS, name, keys) for name in (topic, "") for keys in (None, ["match"])]


@question
def describe_the_configs_of_what_there_is_not(c: RawConnection, topic: str) -> object:
    return [configs_of(c, kind, name) for kind in (0, 1, LOGGER, 64, -1) for name in ("", topic)]


@question
def leave_the_configs_of_a_group_as_they_are(c: RawConnection, topic: str) -> object:
    key = "consumer.session.timeout.ms"
    return [
        altered(c, GROUP, topic),
        altered(c, GROUP, ""),
        altered(c, GROUP, topic, (key, 0, "45000")),
        altered(c, GROUP, topic, (key, 1, None)),
        altered(c, GROUP, topic, ("no.such", 0, "1")),
    ]


@question
def leave_the_configs_of_client_metrics_as_they_are(c: RawConnection, topic: str) -> object:
    return [
        altered(c, CLIENT_METRICS, topic),
        altered(c, CLIENT_METRICS, ""),
        altered(c, CLIENT_METRICS, topic, ("interval.ms", 0, "300000")),
        altered(c, CLIENT_METRICS, topic, ("interval.ms", 1, None)),
        altered(c, CLIENT_METRICS, topic, ("no.such", 0, "1")),
    ]


@question
def change_the_configs_of_client_metrics(c: RawConnection, topic: str) -> object:
    return altered(c, CLIENT_METRICS, topic, ("interval.ms", 0, "1000"))


@question
def alter_the_configs_of_what_there_is_not(c: RawConnection, topic: str) -> object:
    return [altered(c, kind, name) for kind in (0, 1, LOGGER, 64, -1) for name in ("", topic)]


@question
def list_the_resources_that_have_configs(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    here = str(c.call("metadata", 9, topics=[]).brokers[0].node_id)
    names = {here: "here", topic: "there"}

    def listed(*kinds: int) -> object:
        answer = c.call("list_config_resources", 1, resource_types=kinds)
        found = [(each.resource_type, names.get(each.resource_name)) for each in answer.config_resources]
        return answer.error_code.name, sorted(each for each in found if each[1] is not None)

    metrics = c.call("list_config_resources", 0)
    asked = [(TOPIC,), (BROKER,), (CLIENT_METRICS,), (GROUP,), (TOPIC, BROKER, GROUP), (0,), (1,), (TOPIC, 99)]
    return (metrics.error_code.name, metrics.config_resources), [listed(*kinds) for kinds in asked]


@question
def list_every_resource_that_has_configs(c: RawConnection, topic: str) -> object:
    answer = c.call("list_config_resources", 1, resource_types=[])
    return [answer.error_code.name, sorted({each.resource_type for each in answer.config_resources} | {TOPIC})]


# --- the quorum -----------------------------------------------------------------------------------------------------

METADATA = "__cluster_metadata"
ASKED: dict[str, list[tuple[str, list[int]]]] = {
    "nothing": [],
    "the one partition": [(METADATA, [0])],
    "the one partition twice": [(METADATA, [0, 0])],
    "another partition": [(METADATA, [1])],
    "none of its partitions": [(METADATA, [])],
    "another topic": [("orders", [0])],
    "another topic beside it": [(METADATA, [0]), ("orders", [0])],
}


def _quorum_of(asked: list[tuple[str, list[int]]]) -> Question:
    def ask(c: RawConnection, topic: str) -> object:
        here = c.call("metadata", 9, topics=[]).brokers[0].node_id
        topics = [{"topic_name": name, "partitions": [{"partition_index": at} for at in at]} for name, at in asked]
        return [_quorum(c.call("describe_quorum", version, topics=topics), here) for version in range(3)]

    return ask


def _quorum(answer: Any, here: int) -> object:
    """Epoch and offsets are each server's own, and so is where its controller listens."""
    return answer.error_code.name, [
        (
            each.topic_name,
            [
                (
                    part.partition_index,
                    part.error_code.name,
                    part.leader_id == here,
                    part.leader_epoch >= 0,
                    0 < part.high_watermark == part.current_voters[0].log_end_offset if part.current_voters else None,
                    [
                        (voter.replica_id == here, getattr(voter, "replica_directory_id", None))
                        for voter in part.current_voters
                    ],
                    part.observers,
                )
                for part in each.partitions
            ],
        )
        for each in answer.topics
    ]


for _name, _asked in ASKED.items():
    QUESTIONS[f"describe the quorum of {_name}"] = _quorum_of(_asked)


@question
def the_nodes_of_the_quorum(c: RawConnection, topic: str) -> object:
    here = c.call("metadata", 9, topics=[]).brokers[0].node_id
    asked = [{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}]
    answer = c.call("describe_quorum", 2, topics=asked)
    return [(each.node_id == here, [one.host for one in each.listeners]) for each in answer.nodes]


# --- moves ----------------------------------------------------------------------------------------------------------


def moved(c: RawConnection, *asked: tuple[str, list[tuple[int, Any]]], version: int = 1, **more: Any) -> object:
    topics = [
        {"name": name, "partitions": [{"partition_index": at, "replicas": replicas} for at, replicas in partitions]}
        for name, partitions in asked
    ]
    answer = c.call("alter_partition_reassignments", version, topics=topics, timeout=10_000, **more)
    return answer.error_code.name, [
        (each.name, [(part.partition_index, part.error_code.name) for part in each.partitions])
        for each in answer.responses
    ]


@question
def move_partitions_to_where_they_are(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    here = c.call("metadata", 9, topics=[]).brokers[0].node_id
    name, absent = "t", topic + "-absent"
    answers = [
        moved(c, (topic, [(0, [here])]), version=0),
        moved(c, (topic, [(0, [here]), (1, [here])])),
        moved(c, (topic, [(0, [here])]), allow_replication_factor_change=False),
        moved(c, (topic, [(0, [here]), (0, None)])),
        moved(c, (topic, [(0, None), (1, [here])])),
        moved(c, (topic, [(0, [here])]), (topic, [(1, [here])])),
        *(moved(c, (topic, [(0, to)])) for to in ([], [here, here], [here + 76], [here, here + 76], [-1], None)),
        moved(c, (topic, [(9, [here])])),
        moved(c, (absent, [(0, [here])])),
        moved(c, ("", [(0, [here])])),
        moved(c),
    ]
    listed = c.call("list_partition_reassignments", 0, topics=None, timeout=10_000)
    return repr(answers).replace(topic, name), listed.error_code.name, listed.topics


# --- access rules without an authorizer -----------------------------------------------------------------------------


@question
def access_rules_without_an_authorizer(c: RawConnection, topic: str) -> object:
    rule = {"resource_type": 2, "resource_name": topic, "resource_pattern_type": 3, "principal": "User:anna"}
    rule |= {"host": "*", "operation": 3, "permission_type": 3}
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    made = [
        [
            (each.error_code.name, each.error_message)
            for each in c.call("create_acls", version, creations=wanted).results
        ]
        for version in (1, 2, 3)
        for wanted in ([], [rule], [rule, rule | {"resource_name": ""}])
    ]
    gone = [
        [(each.error_code.name, each.error_message) for each in c.call("delete_acls", 3, filters=wanted).filter_results]
        for wanted in ([], [every], [every, every])
    ]
    seen = c.call("describe_acls", 3, **every)
    return made, gone, (seen.error_code.name, seen.resources)


# --- what was made is seen ------------------------------------------------------------------------------------------


@question
def a_new_topic_is_listed_among_those_that_have_configs(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)

    def is_listed() -> object:
        answer = c.call("list_config_resources", 1, resource_types=[TOPIC])
        return topic in {each.resource_name for each in answer.config_resources}

    seen = settled(is_listed, True)
    c.delete_topic(topic)
    return seen, settled(is_listed, False)
