"""Rules between properties: unset ones are made to fit, and set ones that cannot fit are refused.

Each rule answers librdkafka's own sentence, or None. `values` has an attribute for every property and is changed in
place; `given` has the names of those that were set.
"""

from collections.abc import Callable
from typing import Any, Final

Values = dict[str, Any]
Rule = Callable[[Values, frozenset[str]], str | None]

IDEMPOTENT_MAX_IN_FLIGHT: Final = 5
ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
SPOKEN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def fit_producer(values: Values, given: frozenset[str]) -> str | None:
    values["allow_auto_create_topics"] = values["allow_auto_create_topics"] or "allow.auto.create.topics" not in given
    return _first(values, given, _oauth, _idempotence, _linger, _answers, _common, _identity)


def fit_consumer(values: Values, given: frozenset[str]) -> str | None:
    return _first(values, given, _oauth, _fetch, _common, _group)


def fit_admin(values: Values, given: frozenset[str]) -> str | None:
    return _first(values, given, _oauth, _common)


def _first(values: Values, given: frozenset[str], *rules: Rule) -> str | None:
    for rule in rules:
        refusal = rule(values, given)
        if refusal:
            return refusal
    return None


def _idempotence(values: Values, given: frozenset[str]) -> str | None:
    if not values["enable_idempotence"]:
        return None
    is_too_many = values["max_in_flight"] > IDEMPOTENT_MAX_IN_FLIGHT
    if is_too_many and "max.in.flight.requests.per.connection" in given:
        return "`max.in.flight` must be set <= 5 when `enable.idempotence` is true"
    values["max_in_flight"] = min(values["max_in_flight"], IDEMPOTENT_MAX_IN_FLIGHT)
    if values["retries"] < 1:
        return "`retries` must be set >= 1 when `enable.idempotence` is true"
    if values["queue.buffering.backpressure.threshold"] > 1:
        return "`queue.buffering.backpressure.threshold` must be set to 1 when `enable.idempotence` is true"
    if values["acks"] != -1:
        return "`acks` must be set to `all` when `enable.idempotence` is true"
    return None


def _linger(values: Values, given: frozenset[str]) -> str | None:
    if "sticky.partitioning.linger.ms" not in given:
        values["sticky_partitioning_linger_ms"] = min(900_000, int(2 * values["linger_ms"]))
    if values["delivery_timeout_ms"] and values["delivery_timeout_ms"] <= values["linger_ms"]:
        if "queue.buffering.max.ms" in given:
            return "`message.timeout.ms` must be greater than `linger.ms`"
        values["linger_ms"] = values["delivery_timeout_ms"] - 0.1
    return None


def _answers(values: Values, given: frozenset[str]) -> str | None:
    """A broker that holds a request for longer than its answer is waited for would be hung up on for nothing."""
    if "request.timeout.ms" not in given:
        values["request_timeout_ms"] = min(values["request_timeout_ms"], values["socket_timeout_ms"])
    return None


def _identity(values: Values, given: frozenset[str]) -> str | None:
    named = [name for name in ("oncelog.generation", "oncelog.sequence") if name in given]
    if "oncelog.pid" in given:
        if len(named) < 2:
            return "`oncelog.pid` says nothing without `oncelog.generation` and `oncelog.sequence`"
        return None if values["enable_idempotence"] else "`oncelog.pid` requires `enable.idempotence=true`"
    return f"`{named[0]}` says nothing without `oncelog.pid`" if named else None


def _group(values: Values, given: frozenset[str]) -> str | None:
    return _consumer_group(given) if values["group_protocol"] == "consumer" else _classic_group(values)


def _consumer_group(given: frozenset[str]) -> str | None:
    """In KIP-848 the broker decides these, and no member."""
    refusals = {
        "session.timeout.ms": " or share consumer. It is defined broker side",
        "partition.assignment.strategy": ". Use `group.remote.assignor` instead",
        "group.protocol.type": " or share consumer",
        "heartbeat.interval.ms": " or share consumer. It is defined broker side",
    }
    found = next((name for name in refusals if name in given), None)
    return found and f"`{found}` is not supported for `group.protocol=consumer`{refusals[found]}"


def _classic_group(values: Values) -> str | None:
    if values["max_poll_interval_ms"] < values["session_timeout_ms"]:
        return "`max.poll.interval.ms` must be >= `session.timeout.ms`"
    names = values["partition_assignment_strategy"]
    for name in names:
        if name not in ASSIGNORS:
            return f"Unsupported partition.assignment.strategy: {name}"
    if "cooperative-sticky" in names and len(names) > 1:
        return (
            f"All partition.assignment.strategy ({','.join(names)}) assignors must have the same protocol type, online "
            "migration between assignors with different protocol types is not supported"
        )
    return None


def _fetch(values: Values, given: frozenset[str]) -> str | None:
    if not 1 <= values["fetch_min_bytes"] <= 100_000_000:
        return 'Configuration property "fetch.min.bytes" value is outside allowed range 1..100000000'
    if "fetch.max.bytes" in given:
        if values["fetch_max_bytes"] < values["message_max_bytes"]:
            return "`fetch.max.bytes` must be >= `message.max.bytes`"
    else:
        queued_bytes = values["queued_max_messages_kbytes"] * 1024
        values["fetch_max_bytes"] = max(min(values["fetch_max_bytes"], queued_bytes), values["message_max_bytes"])
    wanted_bytes = values["fetch_max_bytes"] + 512
    if "receive.message.max.bytes" not in given:
        values["receive_message_max_bytes"] = max(values["receive_message_max_bytes"], wanted_bytes)
    elif wanted_bytes > values["receive_message_max_bytes"]:
        return "`receive.message.max.bytes` must be >= `fetch.max.bytes` + 512"
    return None


def _common(values: Values, given: frozenset[str]) -> str | None:
    refresh_ms = values["topic_metadata_refresh_interval_ms"]
    if "metadata.max.age.ms" not in given and refresh_ms > 0:
        values["metadata_max_age_ms"] = refresh_ms * 3
    if values["reconnect_backoff_max_ms"] < values["reconnect_backoff_ms"]:
        return "`reconnect.backoff.max.ms` must be >= `reconnect.backoff.ms`"
    if not values["bootstrap_servers"]:
        return "`bootstrap.servers` must be set"
    return _sasl(values) if values["security_protocol"].startswith("sasl") else None


def _sasl(values: Values) -> str | None:
    mechanism = values["sasl_mechanism"]
    if mechanism not in SPOKEN_MECHANISMS:
        known = ", ".join(SPOKEN_MECHANISMS)
        unspoken = " (Kerberos, librdkafka's default) is not spoken here" if mechanism == "GSSAPI" else ""
        return f"Unsupported SASL mechanism: {mechanism}{unspoken}; set `sasl.mechanism` to one of {known}"
    if mechanism == "OAUTHBEARER":
        return None
    if not values["sasl_username"] or not values["sasl_password"]:
        return "sasl.username and sasl.password must be set"
    return None


def _oauth(values: Values, given: frozenset[str]) -> str | None:
    if values["sasl_mechanism"] != "OAUTHBEARER":
        return None
    is_unsecure = values["enable_sasl_oauthbearer_unsecure_jwt"]
    if is_unsecure and values["oauth_cb"]:
        return "`enable.sasl.oauthbearer.unsecure.jwt` and `oauthbearer_token_refresh_cb` are mutually exclusive"
    if values["sasl_oauthbearer_method"] != "oidc":
        return None
    if is_unsecure:
        return "`enable.sasl.oauthbearer.unsecure.jwt` and `sasl.oauthbearer.method=oidc` are mutually exclusive"
    if not values["sasl_oauthbearer_token_endpoint_url"]:
        return "`sasl.oauthbearer.token.endpoint.url` is mandatory when `sasl.oauthbearer.method=oidc` is set"
    return _oidc(values)


def _oidc(values: Values) -> str | None:
    for attribute in ("client_id", "client_secret"):
        if not values[f"sasl_oauthbearer_{attribute}"]:
            name = f"sasl.oauthbearer.{attribute.replace('_', '.')}"
            return f"`{name}` is mandatory when `sasl.oauthbearer.method=oidc` is set"
    return None
