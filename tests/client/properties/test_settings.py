"""What settings come out of what was given, and what is refused that librdkafka would take."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.properties import admin_settings, consumer_settings, producer_settings
from oncelog.client.properties.refused import REFUSED
from oncelog.client.properties.table import HONOURED
from tests.logged import messages

BASE = {"bootstrap.servers": "127.0.0.1:9092"}


def refusal(given: dict[str, Any]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        producer_settings({**BASE, **given})
    return raised.value.error


def test_idempotence_is_on_and_what_is_left_unset_fits_it() -> None:
    settings = producer_settings(BASE)
    assert settings.enable_idempotence
    assert (settings.acks, settings.max_in_flight, settings.retries) == (-1, 5, 2**31 - 1)


@pytest.mark.parametrize("given", [{"acks": 1}, {"max.in.flight": 6}, {"retries": 0}])
def test_what_does_not_fit_idempotence_is_refused_also_where_idempotence_is_only_the_default(
    given: dict[str, Any],
) -> None:
    said = refusal(given)
    assert said == KafkaError._INVALID_ARG
    assert said.str().endswith("when `enable.idempotence` is true")


def test_without_idempotence_anything_goes() -> None:
    settings = producer_settings({**BASE, "enable.idempotence": "false", "acks": 0, "retries": 0})
    assert (settings.acks, settings.max_in_flight, settings.retries) == (0, 1_000_000, 0)


def test_an_alias_and_the_name_are_the_same_attribute_and_the_last_one_counts() -> None:
    assert producer_settings({**BASE, "linger.ms": 1, "queue.buffering.max.ms": 2}).linger_ms == 2
    assert producer_settings({**BASE, "queue.buffering.max.ms": 2, "linger.ms": 1}).linger_ms == 1


def test_what_was_given_is_told_apart_from_what_is_default() -> None:
    settings = producer_settings({**BASE, "linger.ms": 5})
    assert settings.is_given("queue.buffering.max.ms") and not settings.is_given("batch.size")


def test_what_hangs_on_other_properties_follows_them() -> None:
    assert producer_settings({**BASE, "linger.ms": 100}).sticky_partitioning_linger_ms == 200
    assert producer_settings({**BASE, "delivery.timeout.ms": 3}).linger_ms == pytest.approx(2.9)
    assert producer_settings(BASE).allow_auto_create_topics
    assert not producer_settings({**BASE, "allow.auto.create.topics": False}).allow_auto_create_topics
    assert not consumer_settings(BASE).allow_auto_create_topics
    consumer = consumer_settings({**BASE, "queued.max.messages.kbytes": 2000, "topic.metadata.refresh.interval.ms": 5})
    assert consumer.fetch_max_bytes == 2_048_000
    assert consumer.metadata_max_age_ms == 15
    assert consumer_settings({**BASE, "fetch.max.bytes": 200_000_000}).receive_message_max_bytes == 200_000_512


@pytest.mark.parametrize(
    ("written", "addresses"),
    [
        ("a", (("a", 9092),)),
        ("a:1, b:2 ,", (("a", 1), ("b", 2))),
        ("[::1]:5,::1,[fe80::2]", (("::1", 5), ("::1", 9092), ("fe80::2", 9092))),
        ("PLAINTEXT://a:1,sasl_ssl://b", (("a", 1), ("b", 9092))),
    ],
)
def test_bootstrap_servers_are_hosts_and_ports(written: str, addresses: tuple[tuple[str, int], ...]) -> None:
    assert admin_settings({"bootstrap.servers": written}).bootstrap_servers == addresses


@pytest.mark.parametrize("written", ["a:", "a:x", "a:0", "a:65536", ":1", "[::1", "[::1]x", "a:-1", "a:１"])
def test_what_is_no_address_is_refused(written: str) -> None:
    assert f'"{written}" is not a host or host:port' in refusal({"bootstrap.servers": written}).str()


def test_a_port_alone_is_no_address() -> None:
    words = 'bootstrap.servers: "29392" is a port alone: HOST:PORT is wanted, such as 127.0.0.1:29392'
    assert words in refusal({"bootstrap.servers": "a:1,29392"}).str()


@pytest.mark.parametrize("given", [{}, {"bootstrap.servers": ""}, {"bootstrap.servers": None}])
def test_a_cluster_must_be_named(given: dict[str, Any]) -> None:
    with pytest.raises(KafkaException, match=r"`bootstrap.servers` must be set"):
        consumer_settings(given)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused_with_the_reason(name: str) -> None:
    said = refusal({name: "other"})
    assert said == KafkaError._INVALID_ARG
    assert said.str() == f'Configuration property "{name}" cannot be honoured: {REFUSED[name][1]}'


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_may_ask_for_what_happens_anyway(name: str) -> None:
    for value in REFUSED[name][0]:
        producer_settings({**BASE, name: value})


@pytest.mark.parametrize("value", ["3x", "3.7", "1_0", "٣", "0x", "--1"])
def test_what_only_begins_like_a_number_is_refused(value: str) -> None:
    words = 'Invalid value for configuration property "message.send.max.retries" (given as `retries`)'
    assert refusal({"retries": value}).str() == words


def test_a_word_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    words = 'Invalid value "kip848" for configuration property "group.protocol": one of classic, consumer'
    assert refusal({"group.protocol": "kip848"}).str() == words


@pytest.mark.parametrize("value", [["a"], {"a": 1}, b"a", object()])
def test_what_is_neither_text_nor_number_nor_boolean_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="expected text, a number or a boolean"):
        producer_settings({**BASE, "client.id": value})


def test_a_number_too_large_for_an_int_is_out_of_range_rather_than_wrapped() -> None:
    assert "outside allowed range" in refusal({"retries": 2**40}).str()


def test_a_saved_identity_is_whole_or_refused() -> None:
    identity = {"oncelog.pid": 7, "oncelog.generation": 3, "oncelog.sequence": 100}
    settings = producer_settings({**BASE, **identity})
    assert (settings.oncelog_pid, settings.oncelog_generation, settings.oncelog_sequence) == (7, 3, 100)
    for missing in identity:
        partial = {name: value for name, value in identity.items() if name != missing}
        assert "says nothing without" in refusal(partial).str()
    assert "requires `enable.idempotence=true`" in refusal({**identity, "enable.idempotence": False}).str()
    assert "outside allowed range 0..32767" in refusal({**identity, "oncelog.generation": 32768}).str()


def test_a_full_queue_raises_unless_it_is_to_block() -> None:
    assert producer_settings(BASE).oncelog_queue_full == "raise"
    assert producer_settings({**BASE, "oncelog.queue.full": "block"}).oncelog_queue_full == "block"


def test_what_is_not_said_to_be_without_effect_is_looked_at_by_the_client() -> None:
    client = Path(oncelog.__file__).parent / "client"
    code = "\n".join(file.read_text() for file in client.rglob("*.py") if file.parent.name != "properties")
    names = set(re.findall(r"\w+", code))
    assert [known.name for known in HONOURED.values() if known.attribute not in names] == []


def test_secrets_are_not_shown() -> None:
    secrets = ("sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret")
    assert "tell-nobody" not in repr(producer_settings({**BASE, **dict.fromkeys(secrets, "tell-nobody")}))


def test_a_property_of_the_other_kind_is_checked_and_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "oncelog.client"):
        consumer_settings({**BASE, "linger.ms": 5})
    assert messages(caplog, "oncelog.client") == [
        "linger.ms is a property of a producer and changes nothing in a consumer"
    ]


def test_our_own_assignor_is_known_though_librdkafka_has_none_of_that_name() -> None:
    settings = consumer_settings({**BASE, "partition.assignment.strategy": "sticky,range"})
    assert settings.partition_assignment_strategy == ("sticky", "range")


def test_a_wrong_value_is_reported_under_the_name_that_was_typed_too() -> None:
    with pytest.raises(KafkaException, match=r"queue\.buffering\.max\.ms.*\(given as `linger\.ms`\)"):
        producer_settings({"bootstrap.servers": "b", "linger.ms": "soon"})
    with pytest.raises(KafkaException) as refusal:
        producer_settings({"bootstrap.servers": "b", "queue.buffering.max.ms": "soon"})
    assert "given as" not in refusal.value.error.str()


@pytest.mark.parametrize("more", [{}, {"sasl.mechanism": "GSSAPI"}])
def test_who_names_no_mechanism_is_told_which_property_to_set(more: dict[str, str]) -> None:
    given = {"bootstrap.servers": "a", "security.protocol": "SASL_SSL", "sasl.username": "a", "sasl.password": "b"}
    with pytest.raises(
        KafkaException, match=r"GSSAPI \(Kerberos, librdkafka's default\) is not spoken here; set `sasl.mech"
    ):
        producer_settings(given | more)
