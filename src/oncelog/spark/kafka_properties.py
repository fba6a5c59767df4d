"""`kafka.*` options: properties by the names of Kafka's Java client, or librdkafka's, to properties of ours."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from oncelog.client import KafkaException
from oncelog.client.door import ALIASES, HONOURED, PROPERTIES, consumer_settings, producer_settings
from oncelog.settings import nearest

PREFIX: Final = "kafka."

# Kafka's Java clients call it otherwise. The second set is for one role alone.
RENAMED: Final = {
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
RENAMED_FOR_READING: Final = {"fetch.max.wait.ms": "fetch.wait.max.ms", "request.timeout.ms": "socket.timeout.ms"}
RENAMED_FOR_WRITING: Final = {"max.request.size": "message.max.bytes"}

# They say how the Java client goes about its work, not what comes of it.
_NO_EFFECT: Final = """
    auto.include.jmx.reporter default.api.timeout.ms enable.metrics.push exclude.internal.topics max.block.ms
    max.poll.records metadata.max.idle.ms metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    security.providers socket.connection.setup.timeout.max.ms ssl.enabled.protocols ssl.keymanager.algorithm
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
"""
WITHOUT_EFFECT: Final = frozenset(_NO_EFFECT.split())
_SERIALIZERS: Final = (
    "Kafka option '{name}' is not supported as {what}s are serialized with ByteArraySerializer. "
    "Use DataFrame operations to explicitly serialize the {what}s."
)
_DESERIALIZERS: Final = (
    "Kafka option '{name}' is not supported as {what}s are deserialized as byte arrays with ByteArrayDeserializer. "
    "Use DataFrame operations to explicitly deserialize the {what}s."
)
NOT_HONOURED: Final = {
    "auto.offset.reset": "Kafka option 'auto.offset.reset' is not supported. Instead set the source option "
    "'startingOffsets' to 'earliest' or 'latest' to specify where to start.",
    "key.deserializer": _DESERIALIZERS.format(name="key.deserializer", what="key"),
    "value.deserializer": _DESERIALIZERS.format(name="value.deserializer", what="value"),
    "key.serializer": _SERIALIZERS.format(name="key.serializer", what="key"),
    "value.serializer": _SERIALIZERS.format(name="value.serializer", what="value"),
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
    "partitioner.class": "Kafka option 'partitioner.class' is not supported: it names a Java class; "
    "'kafka.partitioner' takes librdkafka's words, of which 'murmur2_random' is what Java does",
}
_PLAIN: Final = frozenset({"ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"})
_LOGIN: Final = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")


class BadProperty(ValueError):
    """Says what is wrong, under the name that the user typed."""


def for_reading(given: Mapping[str, str]) -> dict[str, str]:
    """Properties of a consumer, with Kafka's default for `isolation.level`, as Spark's own source has it."""
    client = {"isolation.level": "read_uncommitted"} | _translated(given, RENAMED | RENAMED_FOR_READING)
    _check(given, client, consumer_settings, "consumer")
    return client


def for_writing(given: Mapping[str, str]) -> dict[str, str]:
    """Properties of a producer. Records go where Kafka's Java client puts them, as Spark's own sink has it."""
    client = {"partitioner": "murmur2_random"} | _translated(given, RENAMED | RENAMED_FOR_WRITING)
    _check(given, client, producer_settings, "producer")
    return client


def _translated(given: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """`given` is without the prefix."""
    client: dict[str, str] = {}
    for name, value in given.items():
        if name in NOT_HONOURED:
            raise BadProperty(NOT_HONOURED[name])
        if name not in WITHOUT_EFFECT:
            found = _special(name, value, given) if name not in _PLAIN else None
            client |= {renamed.get(name, name): value} if found is None else found
    return client


def _special(name: str, value: str, given: Mapping[str, str]) -> dict[str, str] | None:
    """Properties that are more than another name for the same; None for all others."""
    if name == "sasl.jaas.config":
        return _login(value)
    if name.startswith(("ssl.truststore.", "ssl.keystore.")):
        return _store(name, value, given)
    if name == "buffer.memory":
        return {"queue.buffering.max.kbytes": str(max(1, _number(name, value) // 1024))}
    if name in ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"):
        is_meant = given.get("compression.type") == name.split(".")[1]
        return {"compression.level": value} if is_meant else {}
    if name in ("receive.buffer.bytes", "send.buffer.bytes"):
        return {RENAMED[name]: str(max(0, _number(name, value)))}  # Java's -1 leaves it to the system, as our 0 does
    if name == "partitioner.ignore.keys" and value.strip().lower() == "false":
        return {}
    if name == "partitioner.ignore.keys":
        raise BadProperty(f"Kafka option '{name}' is not supported: records with a key go where it says")
    return None


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise BadProperty(f"'{PREFIX}{name}' takes a whole number, not '{value}'") from None


def _login(text: str) -> dict[str, str]:
    """User and password out of Java's `sasl.jaas.config`."""
    found = {name: _ESCAPED.sub(r"\1", value) for name, value in _LOGIN.findall(text)}
    if not any(module in text for module in _MODULES) or len(found) < 2:
        known = " or ".join(_MODULES)
        raise BadProperty(
            f'Kafka option \'sasl.jaas.config\': only {known} with username="..." and password="..." is understood; '
            "'kafka.sasl.username' and 'kafka.sasl.password' say the same"
        )
    return {f"sasl.{name}": value for name, value in found.items()}


def _store(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """Java's key stores, where they are PEM files."""
    _, store, what = name.split(".", 2)
    kind = given.get(f"ssl.{store}.type", "JKS").strip().upper()
    if kind != "PEM":
        names = "'kafka.ssl.ca.location'"
        if store == "keystore":
            names = "'kafka.ssl.certificate.location' and 'kafka.ssl.key.location'"
        raise BadProperty(
            f"Kafka option '{name}': a {store} of type {kind} cannot be read here; give PEM files in {names}"
        )
    if what != "location":
        return {}
    if store == "truststore":
        return {"ssl.ca.location": value}
    return {"ssl.certificate.location": value, "ssl.key.location": value}


def _check(
    given: Mapping[str, str], client: Mapping[str, str], settings: Callable[[Mapping[str, str]], object], role: str
) -> None:
    for name in client:
        if ALIASES.get(name, name) not in PROPERTIES and not _is_known_to(settings, name, client[name]):
            raise BadProperty(
                f"No such option: '{PREFIX}{name}'; the nearest known one is '{PREFIX}{nearest(name, KNOWN)}'"
            )
    if not any(name in given for name in ("bootstrap.servers", "metadata.broker.list")):
        raise BadProperty(f"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka {role}")
    try:
        settings(client)
    except KafkaException as refusal:
        raise BadProperty(f"'kafka.*' options: {refusal.error.str()}") from None


def _is_known_to(settings: Callable[[Mapping[str, str]], object], name: str, value: str) -> bool:
    """Whether it is one that is refused or let through with a reason of its own."""
    try:
        settings({"bootstrap.servers": "localhost", name: value})
    except KafkaException as refusal:
        return "No such configuration property" not in refusal.error.str()
    return True


KNOWN: Final = sorted(
    {*HONOURED, *ALIASES, *RENAMED, *RENAMED_FOR_READING, *RENAMED_FOR_WRITING, "sasl.jaas.config", "buffer.memory"}
)
