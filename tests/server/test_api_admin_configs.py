"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, in every version that is served."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from oncelog.log.work_steps import at_once
from oncelog.security.documents import MOST_BYTES, Kind
from oncelog.server.config_resources import Change, alter
from oncelog.server.settings import SETTINGS
from oncelog.server.topic_configs import TOPIC_CONFIGS
from tests.server.admin_support import CLOCK, Admin, api_named, versions
from tests.server.topics_support import EVERY_TURN_IS_OVER

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
FROM_TOPIC, FROM_BROKER, FROM_ALL_BROKERS, FROM_START, FROM_DEFAULT, FROM_GROUP = 1, 2, 3, 4, 5, 8


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin(tmp_path, "log.retention.minutes=3")


def describe(admin: Admin, version: int, kind: int, name: str, keys: list[str] | None = None, **values: bool) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (result,) = admin.ask("describe_configs", version, resources=[resource], **values).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def values_of(result: Any) -> dict[str, tuple[str | None, int]]:
    return {each.name: (each.value, each.config_source) for each in result.configs}


def change(admin: Admin, kind: int, name: str, *changes: tuple[str, int, str | None], **values: Any) -> ErrorCode:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (response,) = admin.ask("incremental_alter_configs", 1, resources=[resource], **values).responses
    code: ErrorCode = response.error_code
    assert (response.error_message is None) is (code is ErrorCode.none)
    return code


# Describing


@pytest.mark.parametrize("version", versions("describe_configs"))
def test_a_topic_tells_every_config_with_its_source(admin: Admin, version: int) -> None:
    admin.new_topic("a", segment_bytes="5000")
    result = describe(admin, version, TOPIC, "a")
    found = values_of(result)
    assert result.error_code is ErrorCode.none
    assert found.keys() == TOPIC_CONFIGS.keys()
    assert found["segment.bytes"] == ("5000", FROM_TOPIC)
    assert found["retention.ms"] == ("180000", FROM_START)
    assert found["cleanup.policy"] == ("delete", FROM_DEFAULT)
    assert not any(each.read_only or each.is_sensitive or each.synonyms for each in result.configs)


@pytest.mark.parametrize("version", versions("describe_configs"))
def test_the_server_tells_every_setting_and_which_can_be_changed(admin: Admin, version: int) -> None:
    result = describe(admin, version, BROKER, "1")
    found = values_of(result)
    assert found.keys() == SETTINGS.keys()
    assert found["log.retention.minutes"] == ("3", FROM_START)
    assert found["num.partitions"] == ("1", FROM_DEFAULT)
    assert found["log.retention.ms"] == (None, FROM_DEFAULT)
    writable = {each.name for each in result.configs if not each.read_only}
    assert writable == {setting.name for setting in SETTINGS.values() if setting.dynamic}


@pytest.mark.parametrize("version", versions("describe_configs"))
def test_only_what_is_asked_for_is_told(admin: Admin, version: int) -> None:
    admin.new_topic("a")
    result = describe(admin, version, TOPIC, "a", ["retention.ms", "never"])
    assert [each.name for each in result.configs] == ["retention.ms"]
    assert describe(admin, version, TOPIC, "a", []).configs == ()


@pytest.mark.parametrize("version", versions("describe_configs"))
def test_synonyms_tell_what_a_value_falls_back_on(admin: Admin, version: int) -> None:
    admin.new_topic("a", retention_ms="1")
    change(admin, BROKER, "1", ("log.retention.ms", SET, "2"))
    (entry,) = describe(admin, version, TOPIC, "a", ["retention.ms"], include_synonyms=True).configs
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("retention.ms", "1", FROM_TOPIC),
        ("log.retention.ms", "2", FROM_BROKER),
        ("log.retention.minutes", "3", FROM_START),
        ("log.retention.hours", "168", FROM_DEFAULT),
    ]


@pytest.mark.parametrize("version", range(3, 5))
def test_types_and_documentation_are_told(admin: Admin, version: int) -> None:
    admin.new_topic("a")
    keys = ["retention.ms", "cleanup.policy", "min.cleanable.dirty.ratio", "preallocate", "segment.bytes"]
    result = describe(admin, version, TOPIC, "a", keys, include_documentation=True)
    assert {each.name: each.config_type for each in result.configs} == {
        "retention.ms": 5,
        "cleanup.policy": 7,
        "min.cleanable.dirty.ratio": 6,
        "preallocate": 1,
        "segment.bytes": 3,
    }
    assert all(each.documentation for each in result.configs)
    assert not any(each.documentation for each in describe(admin, version, TOPIC, "a").configs)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "never", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "bad name", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
        (LOGGER, "1", ErrorCode.invalid_request),
        (99, "", ErrorCode.invalid_request),
    ],
)
def test_what_is_not_there_cannot_be_described(admin: Admin, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(admin, 4, kind, name)
    assert (result.error_code, result.configs) == (code, ())
    assert change(admin, kind, name) in (code, ErrorCode.unknown_topic_or_partition)


# Changing one by one


@pytest.mark.parametrize("version", versions("incremental_alter_configs"))
def test_single_configs_are_set_and_deleted(admin: Admin, version: int) -> None:
    topic = admin.new_topic("a", segment_bytes="5000", retention_ms="1")
    configs = [
        {"name": "retention.ms", "config_operation": DELETE, "value": None},
        {"name": "max.message.bytes", "config_operation": SET, "value": "700"},
    ]
    resource = {"resource_type": TOPIC, "resource_name": "a", "configs": configs}
    (response,) = admin.ask("incremental_alter_configs", version, resources=[resource]).responses
    assert (response.error_code, response.resource_name) == (ErrorCode.none, "a")
    assert topic.configs == {"segment.bytes": "5000", "max.message.bytes": "700"}
    assert topic.partitions[0].log.config.max_message_bytes == 700


def test_lists_are_appended_to_and_subtracted_from(admin: Admin) -> None:
    topic = admin.new_topic("a")
    assert change(admin, TOPIC, "a", ("cleanup.policy", APPEND, "compact")) is ErrorCode.none
    assert topic.configs == {"cleanup.policy": "delete,compact"}
    assert change(admin, TOPIC, "a", ("cleanup.policy", APPEND, "compact,delete")) is ErrorCode.none
    assert topic.configs == {"cleanup.policy": "delete,compact"}
    assert change(admin, TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.none
    assert topic.configs == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (("retention.ms", APPEND, "1"), ErrorCode.invalid_config),
        (("retention.ms", SUBTRACT, "1"), ErrorCode.invalid_config),
        (("never", APPEND, "1"), ErrorCode.invalid_config),
        (("never", SET, "1"), ErrorCode.invalid_config),
        (("retention.ms", SET, "soon"), ErrorCode.invalid_config),
        (("retention.ms", SET, None), ErrorCode.invalid_request),
        (("cleanup.policy", APPEND, "shred"), ErrorCode.invalid_config),
        (("retention.ms", 9, "1"), ErrorCode.invalid_request),
    ],
)
def test_a_change_that_cannot_be_is_refused_whole(
    admin: Admin, given: tuple[str, int, str | None], code: ErrorCode
) -> None:
    topic = admin.new_topic("a", segment_bytes="5000")
    assert change(admin, TOPIC, "a", ("segment.bytes", SET, "6000"), given) is code
    assert topic.configs == {"segment.bytes": "5000"}


class Compared(str):
    """A part of a list that counts with how many others it is compared."""

    __slots__ = ()
    times = 0

    def split(self, *arguments: Any) -> list[str]:
        return [Compared(part) for part in super().split(*arguments)]

    def strip(self, *arguments: Any) -> "Compared":
        return self

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_long_list_is_not_compared_with_each_part_that_is_named(admin: Admin, operation: int) -> None:
    name, parts = "follower.replication.throttled.replicas", [f"{number}:0" for number in range(300)]
    topic = admin.new_topic("a", 1, **{name.replace(".", "_"): ",".join(parts)})
    named = Compared(",".join([*parts[:150], "0:1"]))
    Compared.times = 0
    changes = [Change(name, operation, named)]
    at_once(alter(admin.topics, TOPIC, "a", changes, CLOCK.now(), validate_only=False))
    assert topic.configs[name] == ",".join([*parts, "0:1"] if operation == APPEND else parts[150:])
    assert Compared.times <= 2 * len(parts)


def test_a_list_grows_no_longer_than_a_value_can_be(admin: Admin) -> None:
    name = "leader.replication.throttled.replicas"
    admin.new_topic("a", 1, **{name.replace(".", "_"): ",".join(f"{number}:0" for number in range(4_000))})
    more = ",".join(f"{number}:1" for number in range(4_000))
    assert change(admin, TOPIC, "a", (name, APPEND, more)) is ErrorCode.invalid_config
    assert change(admin, TOPIC, "a", (name, APPEND, "0:1")) is ErrorCode.none


async def test_a_change_of_the_server_reaches_its_topics_in_turns_and_all_of_them_also_when_the_client_hangs_up(
    tmp_path: Path,
) -> None:
    admin = Admin(tmp_path)
    admin.broker.turns = EVERY_TURN_IS_OVER
    topics = [admin.new_topic(name) for name in "abc"]

    def changed() -> int:
        return sum(topic.partitions[0].log.config.retention_ms == 5 for topic in topics)

    config = SimpleNamespace(name="log.retention.ms", config_operation=SET, value="5")
    resource = SimpleNamespace(resource_type=BROKER, resource_name="", configs=[config])
    handle = api_named("incremental_alter_configs").handle
    assert handle is not None
    call = admin.call("incremental_alter_configs", 1)
    asking = asyncio.ensure_future(handle(SimpleNamespace(resources=[resource], validate_only=False), call))
    while not changed():
        await asyncio.sleep(0)
    assert changed() == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    while changed() < 3:  # it goes on by itself
        await asyncio.sleep(0)


def test_a_config_that_is_named_twice_is_refused(admin: Admin) -> None:
    admin.new_topic("a")
    twice = [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]
    assert change(admin, TOPIC, "a", *twice) is ErrorCode.invalid_request


def test_a_resource_that_is_named_twice_is_refused_and_others_go_through(admin: Admin) -> None:
    twice, once = admin.new_topic("twice"), admin.new_topic("once")
    config = {"name": "retention.ms", "config_operation": SET, "value": "1"}
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configs": [config]} for name in ("twice", "once", "twice")
    ]
    responses = admin.ask("incremental_alter_configs", 1, resources=resources).responses
    refused, done = ErrorCode.invalid_request, ErrorCode.none
    assert [each.error_code for each in responses] == [refused, done, refused]
    assert (twice.configs, once.configs) == ({}, {"retention.ms": "1"})


def test_validating_changes_nothing(admin: Admin) -> None:
    topic = admin.new_topic("a")
    good, bad = ("retention.ms", SET, "1"), ("retention.ms", SET, "x")
    assert change(admin, TOPIC, "a", good, validate_only=True) is ErrorCode.none
    assert change(admin, TOPIC, "a", bad, validate_only=True) is ErrorCode.invalid_config
    assert change(admin, BROKER, "1", ("message.max.bytes", SET, "5000"), validate_only=True) is ErrorCode.none
    assert (topic.configs, admin.settings.message_max_bytes) == ({}, 1_048_588)


# The server's settings


@pytest.mark.parametrize("name", ["1", ""])
def test_dynamic_settings_change_and_go_back(admin: Admin, name: str) -> None:
    assert change(admin, BROKER, name, ("message.max.bytes", SET, "5000")) is ErrorCode.none
    assert admin.settings.message_max_bytes == 5000
    assert values_of(describe(admin, 4, BROKER, "1"))["message.max.bytes"] == ("5000", FROM_BROKER)
    assert values_of(describe(admin, 4, BROKER, "")) == {"message.max.bytes": ("5000", FROM_ALL_BROKERS)}
    assert change(admin, BROKER, name, ("message.max.bytes", DELETE, None)) is ErrorCode.none
    assert admin.settings.message_max_bytes == 1_048_588


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (("node.id", SET, "2"), ErrorCode.invalid_request),
        (("never", SET, "2"), ErrorCode.invalid_request),
        (("message.max.bytes", SET, "-1"), ErrorCode.invalid_config),
        (("message.max.bytes", SET, "200000000"), ErrorCode.invalid_config),
        (("log.retention.ms", SET, "0"), ErrorCode.invalid_config),
        (("compression.type", SET, "brotli"), ErrorCode.invalid_config),
    ],
)
def test_settings_that_cannot_change_or_be_so_are_refused(
    admin: Admin, given: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert change(admin, BROKER, "1", given) is code
    assert admin.settings.changed == {}


# Replacing all


@pytest.mark.parametrize("version", versions("alter_configs"))
def test_alter_configs_replaces_all_that_a_topic_has(admin: Admin, version: int) -> None:
    topic = admin.new_topic("a", segment_bytes="5000", retention_ms="1")
    resource = {
        "resource_type": TOPIC,
        "resource_name": "a",
        "configs": [{"name": "retention.ms", "value": "2"}, {"name": "max.message.bytes", "value": "700"}],
    }
    (dry,) = admin.ask("alter_configs", version, resources=[resource], validate_only=True).responses
    assert (dry.error_code, topic.configs) == (ErrorCode.none, {"segment.bytes": "5000", "retention.ms": "1"})
    (response,) = admin.ask("alter_configs", version, resources=[resource]).responses
    assert response.error_code is ErrorCode.none
    assert topic.configs == {"retention.ms": "2", "max.message.bytes": "700"}
    assert topic.partitions[0].log.config.segment_bytes == 2**30


@pytest.mark.parametrize("version", versions("alter_configs"))
def test_alter_configs_replaces_all_that_the_server_was_told(admin: Admin, version: int) -> None:
    change(admin, BROKER, "1", ("message.max.bytes", SET, "5000"))
    resource = {
        "resource_type": BROKER,
        "resource_name": "1",
        "configs": [{"name": "log.segment.bytes", "value": "700"}],
    }
    (response,) = admin.ask("alter_configs", version, resources=[resource]).responses
    assert response.error_code is ErrorCode.none
    assert admin.settings.changed == {"log.segment.bytes": "700"}


@pytest.mark.parametrize(
    ("name", "configs", "code"),
    [
        ("never", [], ErrorCode.unknown_topic_or_partition),
        ("a", [("odd", "1")], ErrorCode.invalid_config),
        ("a", [("retention.ms", None)], ErrorCode.invalid_request),
        ("a", [("retention.ms", "1"), ("retention.ms", "1")], ErrorCode.invalid_request),
    ],
)
def test_alter_configs_is_refused_for_its_reason(
    admin: Admin, name: str, configs: list[tuple[str, str | None]], code: ErrorCode
) -> None:
    topic = admin.new_topic("a", segment_bytes="5000")
    given = [{"name": key, "value": value} for key, value in configs]
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": given}
    (response,) = admin.ask("alter_configs", 2, resources=[resource]).responses
    assert (response.error_code, topic.configs) == (code, {"segment.bytes": "5000"})


GROUP, CLIENT_METRICS = 32, 16


@pytest.mark.parametrize("version", versions("describe_configs"))
def test_client_metrics_tell_configs_that_nobody_has_changed(admin: Admin, version: int) -> None:
    result = describe(admin, version, CLIENT_METRICS, "any", include_synonyms=True)
    assert result.error_code is ErrorCode.none
    assert values_of(result)["match"] == ("", FROM_DEFAULT)
    assert all(each.read_only for each in result.configs)
    assert describe(admin, version, CLIENT_METRICS, "").error_code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        ("interval.ms", SET, "300000", ErrorCode.none),
        ("interval.ms", SET, "1000", ErrorCode.invalid_config),
        ("metrics", APPEND, "org.apache", ErrorCode.invalid_config),
        ("no.such", DELETE, None, ErrorCode.invalid_request),
    ],
)
def test_configs_of_client_metrics_stay_as_they_are(
    admin: Admin, name: str, operation: int, value: str | None, code: ErrorCode
) -> None:
    assert change(admin, CLIENT_METRICS, "any", (name, operation, value)) is code


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize("version", versions("describe_configs"))
def test_a_group_tells_what_was_set_and_what_it_falls_back_on(tmp_path: Path, version: int) -> None:
    admin = Admin(tmp_path, "group.consumer.session.timeout.ms=46000")
    assert change(admin, GROUP, "g", (SESSION, SET, " 50000 ")) is ErrorCode.none
    result = describe(admin, version, GROUP, "g", include_synonyms=True)
    found, synonyms = values_of(result), {each.name: each.synonyms for each in result.configs}
    assert (found[SESSION], found[HEARTBEAT]) == (("50000", FROM_GROUP), ("5000", FROM_DEFAULT))
    assert [(each.name, each.value, each.source) for each in synonyms[SESSION]] == [
        (SESSION, "50000", FROM_GROUP),
        ("group.consumer.session.timeout.ms", "46000", FROM_START),
        ("group.consumer.session.timeout.ms", "45000", FROM_DEFAULT),
    ]
    assert not any(each.read_only for each in result.configs)
    assert values_of(describe(admin, version, GROUP, "other"))[SESSION] == ("46000", FROM_START)
    assert describe(admin, version, GROUP, "").error_code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        (SESSION, SET, "44999", ErrorCode.invalid_config),
        (SESSION, SET, "60001", ErrorCode.invalid_config),
        (SESSION, SET, "x", ErrorCode.invalid_config),
        (SESSION, SET, None, ErrorCode.invalid_request),
        (SESSION, APPEND, "50000", ErrorCode.invalid_config),
        ("interval.ms", SET, "300000", ErrorCode.invalid_config),
        ("interval.ms", DELETE, None, ErrorCode.none),
    ],
)
def test_what_a_group_may_not_have_is_refused_and_changes_nothing(
    admin: Admin, name: str, operation: int, value: str | None, code: ErrorCode
) -> None:
    assert change(admin, GROUP, "g", (HEARTBEAT, SET, "6000")) is ErrorCode.none
    assert change(admin, GROUP, "g", (name, operation, value)) is code
    assert values_of(describe(admin, 4, GROUP, "g"))[HEARTBEAT] == ("6000", FROM_GROUP)
    assert admin.topics.document(Kind.GROUP_CONFIGS) == {"g": {HEARTBEAT: "6000"}}


def test_a_change_of_a_group_that_is_only_looked_at_is_not_made(admin: Admin) -> None:
    for value, code in (("50000", ErrorCode.none), ("1", ErrorCode.invalid_config)):
        assert change(admin, GROUP, "g", (SESSION, SET, value), validate_only=True) is code
    assert not admin.topics.document(Kind.GROUP_CONFIGS)


def replace_all(admin: Admin, name: str, configs: dict[str, str]) -> ErrorCode:
    given = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": GROUP, "resource_name": name, "configs": given}
    (response,) = admin.ask("alter_configs", 2, resources=[resource]).responses
    code: ErrorCode = response.error_code
    return code


def test_alter_configs_replaces_all_that_a_group_has(admin: Admin) -> None:
    change(admin, GROUP, "other", (SESSION, SET, "50000"))
    change(admin, GROUP, "g", (SESSION, SET, "50000"))
    for configs, left in (({HEARTBEAT: "7000"}, {"g": {HEARTBEAT: "7000"}}), ({}, {})):
        assert replace_all(admin, "g", configs) is ErrorCode.none
        assert admin.topics.document(Kind.GROUP_CONFIGS) == {"other": {SESSION: "50000"}, **left}


def test_alter_configs_drops_what_this_broker_has_not_seen_yet(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    change(admin, GROUP, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000"))
    with monkeypatch.context() as behind:
        behind.setattr(admin.topics, "document", lambda kind: {})
        assert replace_all(admin, "g", {HEARTBEAT: "7000"}) is ErrorCode.none
    assert admin.topics.document(Kind.GROUP_CONFIGS) == {"g": {HEARTBEAT: "7000"}}


def test_what_a_newer_broker_has_set_on_a_group_stays_until_it_is_named_or_all_is_replaced(admin: Admin) -> None:
    newer = {"later.ms": "1", "later.list": ["a"]}

    def left() -> object:
        return admin.topics.document(Kind.GROUP_CONFIGS).get("g")

    at_once(admin.topics.changing_document(Kind.GROUP_CONFIGS, lambda old: {**old, "g": newer}, CLOCK.now()))
    assert change(admin, GROUP, "g", (SESSION, SET, "50000")) is ErrorCode.none
    assert left() == {**newer, SESSION: "50000"}
    assert change(admin, GROUP, "g", ("later.ms", SET, "2")) is ErrorCode.invalid_config
    assert change(admin, GROUP, "g", (SESSION, DELETE, None)) is ErrorCode.none
    assert left() == newer
    assert change(admin, GROUP, "g", ("later.ms", DELETE, None)) is ErrorCode.none
    assert left() == {"later.list": ["a"]}
    assert replace_all(admin, "g", {}) is ErrorCode.none
    assert left() is None


def test_what_groups_have_of_their_own_has_a_bound(admin: Admin) -> None:
    assert change(admin, GROUP, "g", (SESSION, SET, "50000")) is ErrorCode.none
    filler = {f"{number:0>200}": {SESSION: "50000"} for number in range(MOST_BYTES // 250)}
    at_once(admin.topics.changing_document(Kind.GROUP_CONFIGS, lambda old: {**old, **filler}, CLOCK.now()))
    codes = {change(admin, GROUP, letter * 20_000, (SESSION, SET, "50000")) for letter in "abcdefgh"}
    assert ErrorCode.policy_violation in codes
    assert change(admin, GROUP, "g", (SESSION, DELETE, None)) is ErrorCode.none


def test_resources_that_have_configs_are_listed(admin: Admin) -> None:
    admin.new_topic("orders")

    def listed(version: int, **values: Any) -> Any:
        answer = admin.ask("list_config_resources", version, **values)
        return answer.error_code, [
            (each.resource_name, getattr(each, "resource_type", 16)) for each in answer.config_resources
        ]

    assert listed(0) == (ErrorCode.none, [])
    assert listed(1, resource_types=[]) == (ErrorCode.none, [("1", BROKER), ("orders", TOPIC)])
    assert listed(1, resource_types=[TOPIC, GROUP]) == (ErrorCode.none, [("orders", TOPIC)])
    change(admin, GROUP, "g", (SESSION, SET, "50000"))
    assert listed(1, resource_types=[GROUP]) == (ErrorCode.none, [("g", GROUP)])
    assert listed(1, resource_types=[TOPIC, 3]) == (ErrorCode.unsupported_version, [])
