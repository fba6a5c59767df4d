"""What one group may have of its own, within what the server's settings allow."""

import pytest

from oncelog.security.documents import Document
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.group_configs import GROUP_CONFIGS, check, effective, own_of
from oncelog.server.settings_reading import read_settings
from oncelog.settings import SettingsError

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SHORT = ("group.consumer.session.timeout.ms=2000", "group.consumer.heartbeat.interval.ms=100")


def refused(own: dict[str, str], *given: str) -> str:
    with pytest.raises(KafkaError) as refusal:
        check(read_settings(given), own)
    assert refusal.value.code is ErrorCode.invalid_config
    return str(refusal.value.message)


def test_what_is_refused_says_by_which_setting() -> None:
    assert "group.consumer.min.session.timeout.ms, which is 45000" in refused({SESSION: "44999"})
    assert "which is 60000" in refused({SESSION: "60001"})
    assert check(read_settings(()), {SESSION: "60000", HEARTBEAT: "5000"})
    assert "group.share.max.delivery.count.limit, which is 10" in refused({"share.delivery.count.limit": "11"})
    assert "Unknown group config name: no.such" in refused({"no.such": "1"})


def test_what_all_groups_have_is_within_bounds_for_each() -> None:
    settings = read_settings(SHORT)
    assert check(settings, {SESSION: " 2000 ", HEARTBEAT: "100"}) == {SESSION: "2000", HEARTBEAT: "100"}
    assert "which is 2000" in refused({SESSION: "1999"}, *SHORT)
    long = "group.consumer.session.timeout.ms=70000"
    assert check(read_settings((long,)), {SESSION: "70000"})
    assert "which is 70000" in refused({SESSION: "70001"}, long)


def test_a_session_is_longer_than_the_time_between_two_heartbeats() -> None:
    given = (*SHORT, "group.consumer.min.session.timeout.ms=500")
    assert f"{SESSION} must be greater than {HEARTBEAT}" in refused({SESSION: "2000", HEARTBEAT: "2000"}, *given)
    assert f"{SESSION} must be greater than {HEARTBEAT}" in refused({HEARTBEAT: "2000"}, *given)
    equal = read_settings(("group.consumer.session.timeout.ms=5000",))
    assert check(equal, {"consumer.assignment.interval.ms": "7"}), "only what was set can be wrong"


def test_what_is_out_of_bounds_by_now_is_brought_back_into_them() -> None:
    own = {SESSION: "50000", HEARTBEAT: "15000"}
    values = effective(read_settings(("group.consumer.max.session.timeout.ms=46000",)), own)
    assert (values[SESSION], values[HEARTBEAT]) == (46_000, 15_000)
    higher = ("group.consumer.min.session.timeout.ms=52000", "group.consumer.session.timeout.ms=55000")
    assert effective(read_settings(higher), own)[SESSION] == 52_000
    values = effective(read_settings(("group.consumer.min.session.timeout.ms=55000",)), {**own, HEARTBEAT: "soon"})
    assert (values[SESSION], values[HEARTBEAT]) == (50_000, 5_000), "that of all groups is shorter"


def test_what_no_broker_has_written_is_passed_over() -> None:
    own = {SESSION: "50000"}
    damaged: Document = {"a": own, "b": 5, "c": {SESSION: 5}, "d": {"no.such": "1"}, "e": {}}
    assert own_of(damaged, "a") == own
    assert not any(own_of(damaged, group) for group in "bcdef")


def test_nobody_starts_where_no_value_is_within_bounds() -> None:
    for each in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        with pytest.raises(SettingsError, match=f"group.consumer.min.{each} is above group.consumer.max.{each}"):
            read_settings((f"group.consumer.min.{each}=90000",))


def test_the_defaults_are_within_their_bounds() -> None:
    settings = read_settings(())
    defaults = {name: str(config.broker_value(settings)).lower() for name, config in GROUP_CONFIGS.items()}
    assert check(settings, defaults) == defaults
