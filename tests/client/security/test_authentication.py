"""Our own client proves who it is to our own server: both faces, every mechanism, again and again."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, AsyncConsumer, AsyncProducer, Consumer, KafkaError, KafkaException, Producer
from oncelog.client.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from oncelog.client.types import TopicPartition
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.server.jwks import AUDIENCE, Issuer
from tests.server.sasl_support import ANN, PASSWORD, Guarded, guarded

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
COUNT = 20
VALUES = [b"%d" % number for number in range(COUNT)]
SHA_512 = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 10_000)


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


def properties(at: Guarded, mechanism: str = "SCRAM-SHA-256", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": at.address,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": ANN,
        "sasl.password": PASSWORD,
        **more,
    }


def write_and_read(topic: str, given: dict[str, Any]) -> list[bytes | None]:
    with Producer(given) as producer:
        for value in VALUES:
            producer.produce(topic, value)
        assert producer.flush(20) == 0
    with Consumer({**given, "group.id": "g", "enable.auto.commit": False}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(COUNT, 20)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_knows_the_password_writes_and_reads(at: Guarded, topic: str, mechanism: str) -> None:
    assert write_and_read(topic, properties(at, mechanism)) == VALUES


def test_who_has_a_token_writes_and_reads(at: Guarded, topic: str, issuer: Issuer) -> None:
    given = properties(at, "OAUTHBEARER", oauth_cb=lambda _: (issuer.token("one"), 4_000_000_000.0))
    del given["sasl.username"], given["sasl.password"]
    assert write_and_read(topic, given) == VALUES


async def test_the_asyncio_faces_do_so_too(at: Guarded, topic: str) -> None:
    async with AsyncProducer(properties(at)) as producer:
        for future in [await producer.send(topic, value) for value in VALUES]:
            await future
    async with AsyncConsumer({**properties(at), "group.id": "g", "enable.auto.commit": False}) as consumer:
        await consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in await consumer.consume(COUNT, 20)] == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", [ANN, "nobody"])
def test_a_wrong_password_is_told(at: Guarded, mechanism: str, name: str) -> None:
    given = properties(at, mechanism) | {"sasl.username": name, "sasl.password": "wrong"}
    with Admin(given) as admin, pytest.raises(KafkaException) as caught:
        admin.list_topics(timeout=20)
    assert caught.value.error == KafkaError._AUTHENTICATION
    assert "wrong" not in str(caught.value)


def test_users_come_and_go_by_the_admin(at: Guarded) -> None:
    with Admin({"bootstrap.servers": at.open_address}) as admin:
        upsertion = UserScramCredentialUpsertion("eve", SHA_512, b"secret")
        assert "secret" not in repr(upsertion)
        assert admin.alter_user_scram_credentials([upsertion])["eve"].result(20) is None
        named = admin.describe_user_scram_credentials(["eve", "nobody"])
        assert isinstance(named, dict)
        assert named["eve"].result(20) == UserScramCredentialsDescription("eve", (SHA_512,))
        with pytest.raises(KafkaException, match="does not exist"):
            named["nobody"].result(20)
        everybody: Any = admin.describe_user_scram_credentials()
        assert set(everybody.result(20)) == {ANN, "eve"}
        as_eve = properties(at, "SCRAM-SHA-512") | {"sasl.username": "eve", "sasl.password": "secret"}
        with Admin(as_eve) as other:
            assert other.list_topics(timeout=20).brokers
        removed = admin.alter_user_scram_credentials([UserScramCredentialDeletion("eve", SHA_512.mechanism)])
        assert removed["eve"].result(20) is None
        with pytest.raises(KafkaException) as refused:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("eve", SHA_512.mechanism)])["eve"].result(
                20
            )
        assert refused.value.error == KafkaError.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("info", "password"),
    [
        (ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4095), b"x"),
        (ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 16_385), b"x"),
        (ScramCredentialInfo(ScramMechanism.UNKNOWN, 4096), b"x"),
        (SHA_512, b""),
        (SHA_512, "text"),
    ],
)
def test_what_no_broker_would_take_is_refused_at_once(info: ScramCredentialInfo, password: Any) -> None:
    with pytest.raises(KafkaException):
        UserScramCredentialUpsertion("eve", info, password)


async def test_a_proof_is_renewed_while_records_are_on_their_way() -> None:
    """Sessions of a second and a half; nothing fails, nothing is stored twice."""
    with guarded(connections_max_reauth_ms="1500") as found:
        metrics = found.server.broker.metrics
        sent = []
        async with AsyncProducer({**properties(found), "linger.ms": 0}) as producer:
            while metrics.authentications < 4:
                sent.append(await producer.send("t", b"%d" % len(sent)))
                await asyncio.wait(sent[-1:])
            offsets = [(await each).offset() for each in sent]
        assert offsets == list(range(len(sent)))
        assert (metrics.sessions_ended, metrics.authentications_failed) == (0, 0)
