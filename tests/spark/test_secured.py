"""Spark on a log that wants TLS and a password, which is told where it stands and never what it is. Sinks and flows
that are killed meanwhile: tests/chaos/test_secured.py."""

import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.client import Admin, Consumer, NewTopic, Producer
from oncelog.client.types import TopicPartition
from tests.cli.running import Oncelog
from tests.client.net.certificates import Authority
from tests.client.net.secured_kafka import SecuredKafka, login
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip

WORDS = [b"every", b"record", b"once"]


@pytest.fixture(scope="module", params=["oncelog", pytest.param("kafka", marks=pytest.mark.thorough)])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Properties of a client that gets in."""
    if request.param == "oncelog":
        with oncelog.Server(secure=True) as server:
            yield server.client_config
        return
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    with SecuredKafka(tmp_path_factory.mktemp("secured-kafka"), authority) as kafka:
        yield {"bootstrap.servers": kafka.addresses["SASL_SSL"], **login(kafka, "SASL_SSL")}


@pytest.fixture
def topic(log: Mapping[str, str], topic: str) -> str:
    """With its words, and another one beside it."""
    with Admin(log) as admin:
        for made in admin.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}-out", 1)]).values():
            made.result()
    with Producer(log) as producer:
        for word in WORDS:
            producer.produce(topic, word)
    return topic


def by_reference(log: Mapping[str, str], folder: Path) -> dict[str, str]:
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in log.items()))
    return {**log, "sasl.password": f"${{file:{file}:sasl.password}}"}


def read_back(log: Mapping[str, str], topic: str) -> list[bytes | None]:
    with Consumer({**log, "group.id": topic, "enable.auto.commit": False}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(len(WORDS), timeout=30)]


def test_source_and_sink_get_in_by_a_password_that_no_option_holds(
    spark: Any, log: Mapping[str, str], topic: str, tmp_path: Path
) -> None:
    options = {f"kafka.{name}": value for name, value in by_reference(log, tmp_path).items()}
    assert log["sasl.password"] not in options.values()
    rows = spark.readStream.format("oncelog").options(**options, subscribe=topic, startingOffsets="earliest").load()
    sink = rows.select("value").writeStream.format("oncelog").options(**options, topic=f"{topic}-out")
    sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    found = spark.read.format("oncelog").options(**options, subscribe=f"{topic}-out").load()
    assert [bytes(row.value) for row in found.orderBy("offset").collect()] == WORDS


@pytest.mark.usefixtures("spark")
def test_a_copy_gets_in_on_both_sides(
    log: Mapping[str, str], topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_PASSWORD", log["sasl.password"])
    told = {name: value for name, value in by_reference(log, tmp_path).items() if name != "bootstrap.servers"}
    there = ["--from-servers", log["bootstrap.servers"], "--to-servers", log["bootstrap.servers"]]
    there += [word for name, value in told.items() for word in ("--from-property", f"{name}={value}")]
    told["sasl.password"] = "${env:THE_PASSWORD}"
    there += [word for name, value in told.items() for word in ("--to-property", f"{name}={value}")]
    said = Oncelog("127.0.0.1:1")("copy", *there, topic, f"{topic}-out")
    assert said.lines[0].startswith("copied 3 records")
    assert read_back(log, f"{topic}-out") == WORDS


@pytest.mark.parametrize("name", ["ssl.key.pem", "ssl.keystore.key"])
def test_no_plan_shows_a_private_key_that_is_given_as_text(spark: Any, tmp_path: Path, name: str) -> None:
    client = Authority(tmp_path).signs("client")
    key = Path(client.key).read_text()
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.security.protocol": "ssl",
        "kafka.ssl.certificate.pem": Path(client.certificate).read_text(),
        f"kafka.{name}": key,
    }
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        spark.readStream.format("oncelog").options(**options, subscribe="orders").load().explain(True)
    assert "redacted" in said.getvalue()
    assert key.splitlines()[1] not in said.getvalue()
