"""docs/spark-options.md, made from the table: `python -m tests.spark.options_page > docs/spark-options.md`."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from oncelog.settings import Setting
from oncelog.spark.kafka_properties import (
    NOT_HONOURED,
    RENAMED,
    RENAMED_FOR_READING,
    RENAMED_FOR_WRITING,
    WITHOUT_EFFECT,
)
from oncelog.spark.option_table import SOURCE, TARGET
from tests.settings.page import DEFAULT, DOC, NAME, TAKES, names, table

INTRODUCTION: Final = """# Options of the format `oncelog` in Spark

Made from the code by `python -m tests.spark.options_page`; a test holds it to the code.

Names, defaults and meanings are those of Spark's own Kafka source and sink where these have the option; ours have dots
and are lower-case. Names are read without their case. An unknown option is refused, and the refusal names the nearest
known one.
"""
KAFKA: Final = """
## `kafka.*`

`kafka.bootstrap.servers` is needed. Every other `kafka.NAME` is a property of the client: by librdkafka's names, which
[client-settings.md](client-settings.md) lists, or by those of Kafka's Java client, so that a job's options stay as they
are. Where the two defaults differ, a source has Java's `isolation.level` (`read_uncommitted`), and a sink Java's
partitioner (`murmur2_random`). A value may stand [elsewhere](tls.md#secrets-by-reference), as in
`${env:PASSWORD}`, so that [no secret](spark.md#passwords-and-tls) is in a job's code.

| Java's name | here |
|---|---|"""
NO_EFFECT: Final = """
Read and of no effect, since they say how the Java client goes about its work: {names}.

Refused, as by Spark's own source and sink: {refused}. Kerberos (`GSSAPI`) and key stores other than PEM files are
refused with what to give instead."""
SPECIAL: Final = (
    ("sasl.jaas.config", "`sasl.username` and `sasl.password`, of `PlainLoginModule` and `ScramLoginModule`"),
    ("ssl.truststore.location", "`ssl.ca.location`, with `ssl.truststore.type=PEM`"),
    ("ssl.keystore.location", "`ssl.certificate.location` and `ssl.key.location`, with `ssl.keystore.type=PEM`"),
    ("buffer.memory", "`queue.buffering.max.kbytes`"),
    ("compression.CODEC.level", "`compression.level`, where that codec is the one in use"),
)


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "## Source\n"
    yield from _table(SOURCE)
    yield "\n## Sink\n"
    yield from _table(TARGET)
    yield KAFKA
    for java, here in (RENAMED | RENAMED_FOR_READING | RENAMED_FOR_WRITING).items():
        yield f"| `{java}` | `{here}`{_role(java)} |"
    for java, words in SPECIAL:
        yield f"| `{java}` | {words} |"
    yield NO_EFFECT.format(names=names(sorted(WITHOUT_EFFECT)), refused=names(sorted(NOT_HONOURED)))


def _role(java: str) -> str:
    if java in RENAMED:
        return ""
    return " (source)" if java in RENAMED_FOR_READING else " (sink)"


def _table(options: Iterable[Setting]) -> Iterator[str]:
    return table(options, ("option", NAME[1]), ("of", lambda option: names(option.roles)), TAKES, DEFAULT, DOC)


if __name__ == "__main__":
    sys.stdout.write(page())
