"""librdkafka's properties that are read and checked here and change nothing, each with the reason.

They are accepted because they say how librdkafka goes about its work, not what the application gets: a configuration
that was written for it goes on working. What would change what the application gets is refused (refused.py).
"""

from typing import Any, Final

from oncelog.client.properties.common import CONSUMER, PRODUCER
from oncelog.clock import DAY_MS, HOUR_MS
from oncelog.settings import INT_MAX, Kind, Setting

_DEBUG: Final = (
    "generic broker topic metadata feature queue msg protocol cgrp security fetch interceptor "
    "plugin consumer admin eos mock assignor conf telemetry all"
)
_FEATURES: Final = (
    "gzip snappy ssl sasl regex lz4 sasl_gssapi sasl_plain sasl_scram plugins zstd sasl_oauthbearer http oidc"
)
_DEPRECATED: Final = "Deprecated in librdkafka too."
_VERSIONS: Final = "Every broker is asked for its versions."
_LOGGING: Final = "Python's logging decides, by the logger `oncelog.client`."
_SHARE: Final = "For share groups, which are not here."


def _property(kind: Kind, name: str, roles: tuple[str, ...], default: Any, doc: str, **more: Any) -> Setting:
    return Setting(name=name, kind=kind, roles=roles, default=default, doc=doc, **more)


def _text(name: str, doc: str, default: str | None = None, *roles: str) -> Setting:
    return _property(Kind.TEXT, name, roles, default, doc)


def _boolean(name: str, default: bool, doc: str, *roles: str) -> Setting:
    return _property(Kind.BOOLEAN, name, roles, default, doc)


def _integer(name: str, default: int, low: int, high: int, doc: str, *roles: str) -> Setting:
    return _property(Kind.INTEGER, name, roles, default, doc, low=low, high=high)


def _flags(name: str, words: str, doc: str) -> Setting:
    return _property(Kind.FLAGS, name, (), (), doc, words={word: word for word in words.split()})


def _callback(name: str, doc: str) -> Setting:
    return _property(Kind.CALLABLE, name, (), None, doc)


WITHOUT_EFFECT: Final = (
    _flags("builtin.features", _FEATURES, "A question to librdkafka's build."),
    _integer("message.copy.max.bytes", 65_535, 0, 1_000_000_000, "Records are always copied into their batch."),
    _integer("topic.metadata.refresh.fast.interval.ms", 100, 1, 60_000, "A leader is asked for by retry.backoff.ms."),
    _integer("topic.metadata.refresh.fast.cnt", 10, 0, 1000, _DEPRECATED),
    _boolean("topic.metadata.refresh.sparse", True, "Only the topics in use are ever asked about."),
    _flags("debug", _DEBUG, _LOGGING),
    _integer("socket.blocking.max.ms", 1000, 1, 60_000, _DEPRECATED),
    _integer("socket.max.fails", 1, 0, 1_000_000, "A connection on which an answer is missing is always closed."),
    _integer("broker.address.ttl", 1000, 0, DAY_MS, "Names are looked up for every connection."),
    _integer("reconnect.backoff.jitter.ms", 0, 0, HOUR_MS, _DEPRECATED),
    _callback("throttle_cb", "A broker's throttling is obeyed and not told."),
    _integer("enabled_events", 0, 0, INT_MAX, "For the C interface."),
    _integer("log_level", 6, 0, 7, _LOGGING),
    _boolean("log.queue", False, _LOGGING),
    _boolean("log.thread.name", True, _LOGGING),
    _boolean("log.connection.close", True, _LOGGING),
    _boolean("enable.random.seed", True, "Python seeds itself."),
    _integer("internal.termination.signal", 0, 0, 128, "For the C interface."),
    _boolean("api.version.request", True, _VERSIONS),
    _integer("api.version.request.timeout.ms", 10_000, 1, 300_000, _VERSIONS),
    _integer("api.version.fallback.ms", 0, 0, 7 * DAY_MS, _VERSIONS),
    _text("broker.version.fallback", _VERSIONS, "0.10.0"),
    _text("ssl.ca.certificate.stores", "For Windows, where the system's stores are used anyway.", "Root"),
    _text("sasl.kerberos.service.name", "Without GSSAPI it says nothing.", "kafka"),
    _text("sasl.kerberos.principal", "Without GSSAPI it says nothing.", "kafkaclient"),
    _text("sasl.kerberos.kinit.cmd", "Without GSSAPI it says nothing."),
    _text("sasl.kerberos.keytab", "Without GSSAPI it says nothing."),
    _integer("sasl.kerberos.min.time.before.relogin", 60_000, 0, DAY_MS, "Without GSSAPI it says nothing."),
    _boolean("enable.metrics.push", True, "Nothing about this client is sent to brokers."),
    _integer("coordinator.query.interval.ms", 600_000, 1, HOUR_MS, "Asked for when it is lost.", CONSUMER),
    _integer("fetch.queue.backoff.ms", 1000, 0, 300_000, "Fetching goes on as soon as there is room.", CONSUMER),
    _integer("max.poll.records", 500, 1, INT_MAX, _SHARE, CONSUMER),
    _text("share.acknowledgement.mode", _SHARE, "implicit", CONSUMER),
    _boolean("auto.commit.enable", True, "For librdkafka's old consumer.", CONSUMER),
    _text("offset.store.path", _DEPRECATED, ".", CONSUMER),
    _integer("offset.store.sync.interval.ms", -1, -1, DAY_MS, _DEPRECATED, CONSUMER),
    _integer("consume.callback.max.messages", 0, 0, 1_000_000, "For the C interface.", CONSUMER),
    _integer(
        "transaction.timeout.ms",
        60_000,
        1000,
        INT_MAX,
        "Only the Spark sink has transactions, and reads it; not given, it takes 300000 (five minutes).",
        PRODUCER,
    ),
    _integer(
        "queue.buffering.backpressure.threshold", 1, 1, 1_000_000, "Batches wait for brokers, not in them.", PRODUCER
    ),
    _boolean("produce.offset.report", False, "Offsets are always reported.", PRODUCER),
    _property(
        Kind.CHOICE,
        "sasl.oauthbearer.assertion.algorithm",
        (),
        "RS256",
        "Only with the refused grant.",
        words={"rs256": "RS256", "es256": "ES256"},
    ),
)
