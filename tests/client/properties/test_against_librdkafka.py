"""Names, ranges, defaults and refusals are those of the real librdkafka, asked each time."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.errors import KafkaException
from oncelog.client.properties import admin_settings, consumer_settings, producer_settings
from oncelog.client.properties.refused import ONLY_IN_C, REFUSED
from oncelog.client.properties.table import ALIASES, PROPERTIES
from oncelog.settings import Kind, Setting
from tests.client.properties.real import RealProperty, real_properties, real_refusal
from tests.client.properties_page import page

READERS: dict[str, Callable[[dict[Any, Any]], object]] = {
    "producer": producer_settings,
    "consumer": consumer_settings,
    "admin": admin_settings,
}
BASE = {"bootstrap.servers": "127.0.0.1:1"}

# Where ours differs, and why stands on the page.
OTHER_DEFAULTS = {
    "client.id": "oncelog",
    "enable.idempotence": "true",
    "check.crcs": "true",
    "compression.codec": "none",
    "builtin.features": "",
    "sasl.kerberos.kinit.cmd": "",
}
# Printed twice: once for all topics, once for one. The second counts for librdkafka's old interface only.
OF_OLD_INTERFACES = {"enable.auto.commit", "auto.commit.interval.ms", "offset.store.method", "compression.codec"}


@pytest.fixture(scope="module")
def known_to_librdkafka(tmp_path_factory: pytest.TempPathFactory) -> list[RealProperty]:
    seen: dict[str, RealProperty] = {}
    for known in real_properties(tmp_path_factory.mktemp("librdkafka")):
        if known.name not in seen or known.name not in OF_OLD_INTERFACES:
            seen[known.name] = known
    assert len(seen) > 180
    return list(seen.values())


def test_every_property_of_librdkafka_is_known(known_to_librdkafka: list[RealProperty]) -> None:
    ours = {*PROPERTIES, *ALIASES, *REFUSED, *ONLY_IN_C.split(), *CALLBACKS}
    assert [known.name for known in known_to_librdkafka if known.name not in ours] == []


def test_every_property_of_ours_is_librdkafkas_or_is_called_oncelog(known_to_librdkafka: list[RealProperty]) -> None:
    theirs = {known.name for known in known_to_librdkafka} | {"on_delivery", "on_commit", "oauth_cb"}
    own = {name for name in (*PROPERTIES, *ALIASES, *REFUSED) if name not in theirs}
    assert {"oncelog.pid", "oncelog.generation", "oncelog.sequence", "oncelog.queue.full"} <= own
    assert [name for name in own if not name.startswith("oncelog.")] == []


def test_aliases_mean_the_same(known_to_librdkafka: list[RealProperty]) -> None:
    theirs = {known.name: known.alias_of for known in known_to_librdkafka if known.alias_of}
    assert dict(ALIASES) == theirs


def test_scopes_ranges_words_and_defaults_are_the_same(known_to_librdkafka: list[RealProperty]) -> None:
    compared = 0
    for real in known_to_librdkafka:
        ours = PROPERTIES.get(real.name)
        if ours is None:
            continue
        compared += 1
        assert SCOPES[ours.roles] == real.scope, real.name
        assert _kind(ours) == real.kind, real.name
        assert _default(ours) == OTHER_DEFAULTS.get(real.name, real.default), real.name
        if ours.kind in (Kind.INTEGER, Kind.NUMBER):
            assert f"{ours.low:.15g} .. {ours.high:.15g}" == real.takes, real.name
        if ours.kind in (Kind.CHOICE, Kind.FLAGS) and real.name != "builtin.features":
            assert set(ours.words) - {"inherit"} == set(real.takes.lower().split(", ")), real.name
    assert compared > 110


SCOPES = {(): "*", ("producer",): "P", ("consumer",): "C"}
CALLBACKS = {"error_cb", "stats_cb", "throttle_cb"}
KINDS = {
    Kind.TEXT: "string",
    Kind.BOOLEAN: "boolean",
    Kind.INTEGER: "integer",
    Kind.NUMBER: "float",
    Kind.CHOICE: "enum value",
    Kind.FLAGS: "CSV flags",
    Kind.CALLABLE: "see dedicated API",
}


def _kind(ours: Setting) -> str:
    return KINDS[ours.kind]


def _default(ours: Setting) -> str:
    value = ours.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value)
    if ours.name == "auto.offset.reset":
        return {"latest": "largest"}[value]
    return "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


SASL = {"security.protocol": "sasl_plaintext"}
OAUTH = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
OIDC = {**OAUTH, "sasl.oauthbearer.method": "oidc"}

PRODUCERS: list[dict[Any, Any]] = [
    {"linger.ms": -1},
    {"linger.ms": 900_001},
    {"linger.ms": "x"},
    {"linger.ms": ""},
    {"linger.ms": None},
    {"linger.ms": 0.5},
    {"linger.ms": "1e1"},
    {"acks": "none"},
    {"acks": "all"},
    {"acks": "ALL"},
    {"acks": "-1"},
    {"acks": -2},
    {"acks": 1001},
    {"acks": 2, "enable.idempotence": False},
    {"acks": 0, "enable.idempotence": True},
    {"acks": "1", "enable.idempotence": "true"},
    {"request.required.acks": 1, "enable.idempotence": True},
    {"max.in.flight": 6, "enable.idempotence": 1},
    {"max.in.flight.requests.per.connection": 1000, "enable.idempotence": True},
    {"max.in.flight": 5, "enable.idempotence": 1},
    {"max.in.flight": 0},
    {"retries": 0, "enable.idempotence": "T"},
    {"message.send.max.retries": 0, "enable.idempotence": True},
    {"retries": 0, "enable.idempotence": False},
    {"retries": "0x10"},
    {"retries": "3 "},
    {"retries": None},
    {"queue.buffering.backpressure.threshold": 2, "enable.idempotence": True},
    {"enable.idempotence": "yes"},
    {"enable.idempotence": ""},
    {"enable.idempotence": None},
    {"enable.idempotence": 2},
    {"compression.type": "x"},
    {"compression.type": "x,y"},
    {"compression.type": ""},
    {"compression.type": " gzip "},
    {"compression.type": "GZIP"},
    {"compression.codec": "brotli"},
    {"compression.level": 13},
    {"compression.level": 12},
    {"partitioner": "x"},
    {"partitioner": ""},
    {"partitioner": "Murmur2"},
    {"partitioner": "murmur2_random"},
    {"message.timeout.ms": True},
    {"delivery.timeout.ms": 1},
    {"delivery.timeout.ms": 5, "linger.ms": 5},
    {"delivery.timeout.ms": 0, "linger.ms": 5},
    {"debug": "x"},
    {"debug": ""},
    {"debug": "-topic,+broker,"},
    {"session.timeout.ms": 3},
    {"session.timeout.ms": 0},
    {"reconnect.backoff.ms": 20_000},
    {"transactional.id": ""},
    {"enable.gapless.guarantee": False},
    {"dr_cb": print},
    {"rebalance_cb": print},
    {"error_cb": 3},
    {"error_cb": None},
    {"stats_cb": 3},
    {"oauth_cb": 3},
    {"on_delivery": 3},
    {"on_delivery": print},
    {"default.topic.config": {"acks": "x"}},
    {"default.topic.config": {"acks": -1}},
    {"client.id": 5},
    {"client.id": None},
    {"security.protocol": "tls"},
    {"security.protocol": "SSL"},
    {"ssl.endpoint.identification.algorithm": "http"},
    {"sasl.mechanisms": ""},
    {"sasl.mechanisms": "PLAIN,SCRAM-SHA-256"},
    {**SASL, "sasl.mechanism": "PLAIN"},
    {**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": ""},
    {**SASL, "sasl.mechanism": "SCRAM-SHA-256"},
    {**SASL, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a", "sasl.password": "b"},
    {**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"},
    OAUTH,
    OIDC,
    {**OIDC, "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/"},
    {**OIDC, "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/", "sasl.oauthbearer.client.id": "x"},
    {**OIDC, "enable.sasl.oauthbearer.unsecure.jwt": True},
    {**OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": True, "oauth_cb": print},
    {**OAUTH, "sasl.oauthbearer.method": "x"},
]

CONSUMERS: list[dict[Any, Any]] = [
    {},
    {"session.timeout.ms": 0},
    {"session.timeout.ms": 6000, "max.poll.interval.ms": 5000},
    {"session.timeout.ms": 6000, "heartbeat.interval.ms": 6000},
    {"auto.offset.reset": "x"},
    {"auto.offset.reset": "smallest"},
    {"partition.assignment.strategy": "x"},
    {"partition.assignment.strategy": "range,"},
    {"partition.assignment.strategy": ""},
    {"partition.assignment.strategy": "range,cooperative-sticky"},
    {"partition.assignment.strategy": "cooperative-sticky"},
    {"partition.assignment.strategy": "roundrobin, range"},
    {"fetch.max.bytes": 1},
    {"fetch.max.bytes": 2**31 - 512},
    {"fetch.min.bytes": 0},
    {"fetch.min.bytes": 100_000_001},
    {"receive.message.max.bytes": 1000},
    {"queued.max.messages.kbytes": 0},
    {"max.partition.fetch.bytes": 0},
    {"isolation.level": "x"},
    {"enable.auto.commit": "no"},
    {"group.instance.id": ""},
    {"group.protocol": "classic"},
    {"group.protocol": "x"},
    {"group.protocol": "consumer"},
    {"group.protocol": "Consumer", "group.remote.assignor": "range"},
    {"group.protocol": "consumer", "group.remote.assignor": ""},
    {"group.protocol": "consumer", "session.timeout.ms": 45_000},
    {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
    {"group.protocol": "consumer", "group.protocol.type": "consumer"},
    {"group.protocol": "consumer", "heartbeat.interval.ms": 3000},
    {"group.protocol": "consumer", "heartbeat.interval.ms": 3000, "session.timeout.ms": 6000},
    {"group.protocol": "consumer", "max.poll.interval.ms": 100},
    {"group.protocol": "classic", "group.remote.assignor": "uniform"},
    {"check.crcs": 2},
    {"on_commit": 3},
    {"acks": 1},
    {"acks": "x"},
    {"enable.idempotence": True, "acks": 0},
]

ADMINS: list[dict[Any, Any]] = [
    {},
    {"acks": "x"},
    {"reconnect.backoff.ms": 20_000},
    {**SASL, "sasl.mechanism": "PLAIN"},
    {"socket.timeout.ms": 9},
]

CASES = [
    *(("producer", case) for case in PRODUCERS),
    *(("consumer", {"group.id": "g", **case}) for case in CONSUMERS),
    *(("admin", case) for case in ADMINS),
]


@pytest.mark.parametrize(("client", "case"), CASES, ids=lambda value: str(value)[:60])
def test_the_same_is_refused_with_the_same_code_and_words(client: str, case: dict[Any, Any]) -> None:
    given = {**BASE, **case}
    assert _ours(client, given) == _without_blanks(real_refusal(client, given))


def test_out_of_range_is_said_in_the_same_words_for_every_number() -> None:
    asked = 0
    for known in PROPERTIES.values():
        if known.kind not in (Kind.INTEGER, Kind.NUMBER) or known.name.startswith("oncelog."):
            continue
        client = "consumer" if known.roles == ("consumer",) else "producer"
        for value in {int(known.low or 0) - 1, min(int(known.high or 0) + 1, 2**31 - 1)} - {int(known.high or 0)}:
            given = {**BASE, "group.id": "g", known.name: value}
            assert _ours(client, given) == _without_blanks(real_refusal(client, given)), (known.name, value)
            asked += 1
    assert asked > 80


@pytest.mark.parametrize("mechanism", ["GSSAPI", "XX"])
def test_a_mechanism_that_is_not_spoken_is_refused_before_anything_is_sent(mechanism: str) -> None:
    given = {**BASE, **SASL, "sasl.mechanism": mechanism}
    ours, real = _ours("producer", given), real_refusal("producer", given)
    assert ours is not None and real is not None
    assert ours[:2] == real[:2]
    assert "UnsupportedSASLmechanism:" in ours[2]


def test_an_unknown_property_is_refused_in_the_same_words_with_the_nearest_known_one_added() -> None:
    given = {**BASE, "liner.ms": 5}
    ours, real = _ours("producer", given), _without_blanks(real_refusal("producer", given))
    assert ours is not None and real is not None
    assert ours == (real[0], real[1], real[2] + ';thenearestknownoneis"linger.ms"')


Refusal = tuple[str, int | None, str] | None


def _ours(client: str, given: dict[Any, Any]) -> Refusal:
    try:
        READERS[client](given)
    except KafkaException as refusal:
        return _without_blanks(("KafkaException", refusal.error.code(), _theirs(refusal.error.str(), given)))
    except (TypeError, ValueError) as refusal:
        return _without_blanks((type(refusal).__name__, None, str(refusal)))
    return None


def _theirs(words: str, given: dict[Any, Any]) -> str:
    """Without what we add, which librdkafka does not say: an alias that was typed, and the words that there are."""
    typed = {*given, *given.get("default.topic.config", ())}
    alias = next((name for name in typed if words.endswith(f" (given as `{name}`)")), None)
    words = words if alias is None else words.removesuffix(f" (given as `{alias}`)")
    return re.sub(r'(Invalid value ".*" for configuration property "[^"]*"): .*', r"\1", words)


def _without_blanks(refusal: Refusal) -> Refusal:
    """Some of librdkafka's sentences lack a blank, others end a line."""
    return refusal and (refusal[0], refusal[1], "".join(refusal[2].split()))


def test_the_page_says_what_the_code_does() -> None:
    written = Path(__file__).parents[3] / "docs" / "client-settings.md"
    assert written.read_text() == page(), "run: python -m tests.client.properties_page > docs/client-settings.md"
