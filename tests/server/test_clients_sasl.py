"""Stock clients that prove who they are to the server in this process; tests/peers has Java's."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism
from confluent_kafka.admin import UserScramCredentialDeletion as Deletion
from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion

from tests.client.net.certificates import Authority
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.server.jwks import AUDIENCE, Issuer
from tests.server.sasl_support import ANN, PASSWORD, Guarded, guarded
from tests.waiting import until

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
COUNT = 20
VALUES = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    folder: Path = tmp_path_factory.mktemp("issuer")
    found = Issuer(folder / "keys.json")
    found.new_key("one")
    found.publish()
    return found


@pytest.fixture(scope="module")
def at(issuer: Issuer) -> Iterator[Guarded]:
    with guarded(
        sasl_enabled_mechanisms="SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=issuer.url,
        sasl_oauthbearer_expected_audience=AUDIENCE,
    ) as found:
        yield found


@pytest.fixture
def topic(at: Guarded) -> str:
    with RawConnection(at.open_address) as raw:
        return new_topic(raw)


def librdkafka(at: Guarded, mechanism: str = "SCRAM-SHA-256", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": at.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": ANN,
        "sasl.password": PASSWORD,
        **more,
    }


def write_and_read(topic: str, properties: dict[str, Any]) -> list[bytes | None]:
    producer = Producer({**properties, "enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = Consumer({**properties, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(COUNT, 20)]
    consumer.close()
    return values


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(at: Guarded, topic: str, mechanism: str) -> None:
    assert write_and_read(topic, librdkafka(at, mechanism)) == VALUES


def test_librdkafka_with_a_token(at: Guarded, topic: str, issuer: Issuer) -> None:
    def token(_: str) -> tuple[str, float]:
        return issuer.token("one"), 4_000_000_000.0

    properties = librdkafka(at, "OAUTHBEARER", oauth_cb=token)
    del properties["sasl.username"], properties["sasl.password"]
    assert write_and_read(topic, properties) == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", [ANN, "nobody"])
def test_librdkafka_is_told_of_a_wrong_password(at: Guarded, mechanism: str, name: str) -> None:
    told: list[Any] = []
    properties = librdkafka(at, mechanism, error_cb=told.append)
    producer = Producer({**properties, "sasl.username": name, "sasl.password": "wrong", "log_level": 0})
    until(lambda: producer.poll(0.05) is not None and told, "the client to say what is wrong")
    assert told[0].name() == "_AUTHENTICATION"


def test_librdkafka_makes_users_and_removes_them(at: Guarded) -> None:
    admin = AdminClient({"bootstrap.servers": at.open_address})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 10_000)
    admin.alter_user_scram_credentials([Upsertion("eve", info, b"secret")])["eve"].result(20)
    described = described_by(admin, ["eve"])["eve"].result(20)
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_512, 10_000)
    as_eve = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "eve", "sasl.password": "secret"}
    assert set(AdminClient({**librdkafka(at), **as_eve}).list_topics(timeout=20).brokers) == {1}
    admin.alter_user_scram_credentials([Deletion("eve", ScramMechanism.SCRAM_SHA_512)])["eve"].result(20)
    with pytest.raises(KafkaException, match="does not exist"):
        described_by(admin, ["eve"])["eve"].result(20)
    assert "eve" not in described_by(admin).result(20)


def described_by(admin: AdminClient, *users: list[str]) -> Any:
    return admin.describe_user_scram_credentials(*users)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(at: Guarded, topic: str, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    proof = {
        "bootstrap_servers": at.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ANN,
        "sasl_plain_password": PASSWORD,
    }
    producer = KafkaProducer(**proof)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **proof)
    values = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    assert values == VALUES


def test_kafka_python_is_told_of_a_wrong_password(at: Guarded) -> None:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    failed = at.metrics[1]
    with pytest.raises(KafkaError):  # it may see the end of the connection before what came in front of it
        KafkaAdminClient(
            bootstrap_servers=at.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username=ANN,
            sasl_plain_password="wrong",
            bootstrap_timeout_ms=500,
        )
    assert at.metrics[1] > failed


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(at: Guarded, topic: str, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    proof = {
        "bootstrap_servers": at.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ANN,
        "sasl_plain_password": PASSWORD,
    }

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(enable_idempotence=True, **proof)
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait(topic, value)
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **proof)
        await consumer.start()
        values = [(await consumer.getone()).value for _ in range(COUNT)]
        await consumer.stop()
        return values

    assert asyncio.run(run()) == VALUES


def test_aiokafka_is_told_of_a_wrong_password(at: Guarded) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=at.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=ANN,
            sasl_plain_password="wrong",
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaError):
        asyncio.run(run())


def test_librdkafka_proves_it_again_and_loses_nothing() -> None:
    """Sessions of a second and a half, and many proofs while records are on their way."""
    with guarded(connections_max_reauth_ms="1500") as found:
        reports: list[Any] = []
        is_over = threading.Event()
        producer = Producer({**librdkafka(found), "linger.ms": 0, "acks": "all"})
        metrics = found.server.broker.metrics
        number = 0
        while metrics.authentications < 5:
            producer.produce("t", b"%d" % number, on_delivery=lambda error, _: reports.append(error))
            number += 1
            producer.poll(0.01)
        assert producer.flush(20) == 0 and not is_over.is_set()
        assert reports == [None] * number
        assert metrics.sessions_ended == 0
        consumer = Consumer({**librdkafka(found), "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", 0, 0)])
        values = [message.value() for message in consumer.consume(number, 20)]
        consumer.close()
        assert values == [b"%d" % each for each in range(number)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_within_tls(tmp_path: Path, mechanism: str) -> None:
    """Where passwords may be shown."""
    authority = Authority(tmp_path)
    own = authority.signs("server")
    keystore = tmp_path / "keystore.pem"
    keystore.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    with guarded(
        listeners="PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512",
        oncelog_sasl_without_tls="false",
        ssl_keystore_location=str(keystore),
    ) as found:
        with RawConnection(found.open_address) as raw:
            topic = new_topic(raw)
        properties = librdkafka(found, mechanism) | {"security.protocol": "SASL_SSL"}
        properties["ssl.ca.location"] = str(authority.certificate)
        assert write_and_read(topic, properties) == VALUES
