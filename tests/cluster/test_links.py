"""Brokers reach each other by a listener of their own: encrypted, and known to each other as brokers."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

import pytest

from oncelog.cluster.links import Links, link_of
from oncelog.cluster.peer import PeerGone
from oncelog.server.errors import ErrorCode
from oncelog.server.guarded_connection import GuardedConnection
from oncelog.server.settings_reading import read_settings
from oncelog.settings import SettingsError
from oncelog.wire.requests import request_schema
from tests.client.net.certificates import Authority
from tests.cluster.brokers import ALL, PATIENCE_S, Brokers, three
from tests.raw import batch


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of one that the authority has signed, for this host."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    made = authority.signs("broker")
    both = folder / "both.pem"
    both.write_text(Path(made.key).read_text() + Path(made.certificate).read_text())
    return {"ssl_keystore_location": str(both), "ssl_truststore_location": authority.certificate}


def cluster(folder: Path, protocol: str, **settings: str) -> AbstractAsyncContextManager[Brokers]:
    return three(
        folder,
        listeners="PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        listener_security_protocol_map=f"INTERNAL:{protocol}",
        inter_broker_listener_name="internal",
        **settings,
    )


def guests(found: Brokers) -> set[str]:
    """Who has come in by a listener where one has to say who one is."""
    return {
        each.principal
        for broker in found.brokers.values()
        for each in broker.service.connections.each()
        if isinstance(each, GuardedConnection)
    }


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL", "SASL_SSL"])
async def test_records_come_to_followers_by_the_listener_of_brokers(
    tmp_path: Path, certificates: dict[str, str], protocol: str
) -> None:
    more = certificates if protocol.endswith("SSL") else {}
    async with cluster(tmp_path, protocol, **more) as found:
        await found.create(partitions=3)
        assert (await found.produce(batch([b"a"]))).error_code is ErrorCode.none
        wanted = {f"Broker:{node}" for node in ALL} if protocol.startswith("SASL") else set()
        await found.until(lambda: guests(found) == wanted)


async def test_who_does_not_know_the_secret_is_no_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path, "SASL_PLAINTEXT") as found:
        broker = found.brokers[1].broker
        stranger = Links(broker.settings, lambda: "another secret")
        with pytest.raises(PeerGone, match="does not take this one for a broker of its cluster"):
            await stranger.connect(("127.0.0.1", broker.ports["INTERNAL"]), PATIENCE_S)
        assert broker.metrics.authentications_failed == 1


async def test_who_guesses_at_their_host_does_not_keep_brokers_apart(tmp_path: Path) -> None:
    async with cluster(tmp_path, "SASL_PLAINTEXT") as found:
        broker = found.brokers[1].broker
        guard = found.brokers[1].service.connections.guard
        while not guard.is_barred("127.0.0.1"):
            guard.count_failure("127.0.0.1")
        port = broker.ports["INTERNAL"]
        peer = await Links(broker.settings, lambda: broker.cluster.secret).connect(("127.0.0.1", port), PATIENCE_S)
        peer.close()


async def test_a_quota_of_all_users_makes_no_broker_wait(tmp_path: Path) -> None:
    """Clients wait for what brokers ask each other: the ends of transactions are among it."""
    async with cluster(tmp_path, "SASL_PLAINTEXT") as found:
        quota = {
            "entity": [{"entity_type": "user", "entity_name": None}],
            "ops": [{"key": "request_percentage", "value": 0.00001, "remove": False}],
        }
        answer = await found.ask(1, "alter_client_quotas", 1, entries=[quota], validate_only=False)
        assert [each.error_code for each in answer.entries] == [ErrorCode.none]
        broker, schema = found.brokers[1].broker, request_schema("describe_cluster", 0)
        assert broker.quotas.is_on
        port = broker.ports["INTERNAL"]
        peer = await Links(broker.settings, lambda: broker.cluster.secret).connect(("127.0.0.1", port), PATIENCE_S)
        asked = schema.new("DescribeClusterRequest", include_cluster_authorized_operations=False)
        told = schema.read(await peer.ask(schema.encode(asked, 1, "other"), PATIENCE_S))
        peer.close()
        assert told.throttle_time == timedelta(0)


async def test_a_certificate_that_nobody_trusts_ends_the_connection(
    tmp_path: Path, certificates: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    async with cluster(
        tmp_path / "data", "SASL_SSL", **certificates | {"ssl_truststore_location": other.certificate}
    ) as found:
        assert await found.create(partitions=1, settled=False) is ErrorCode.none
        await found.until(lambda: "certificate verify failed" in caplog.text.lower())


def test_a_listener_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingsError, match="listeners names none of that name, but PLAINTEXT"):
        link_of(read_settings({"inter.broker.listener.name": "other"}))


async def test_brokers_that_speak_tls_must_know_whom_to_trust(tmp_path: Path, certificates: dict[str, str]) -> None:
    only = {"ssl_keystore_location": certificates["ssl_keystore_location"]}
    with pytest.raises(SettingsError, match="which authorities their certificates come from"):
        async with cluster(tmp_path, "SSL", **only):
            pass
