"""Brokers that are reached, and advertised addresses that do not lead to them."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from oncelog.doctor.cluster import check_cluster
from oncelog.doctor.finding import Finding, Verdict
from oncelog.doctor.kafka_release import kafka_release
from oncelog.embedded import Server

TIMEOUT_S = 5.0


def look(servers: str, timeout_s: float = TIMEOUT_S, **properties: str) -> list[Finding]:
    return asyncio.run(check_cluster({"bootstrap.servers": servers, **properties}, timeout_s))


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {each.name: each.verdict for each in findings}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def advertising(address: str) -> Server:
    return Server(settings={"advertised.listeners": f"PLAINTEXT://{address}"})


def bound(server: Server) -> str:
    """Where it really listens, whatever it advertises."""
    return f"127.0.0.1:{server.broker.ports['PLAINTEXT']}"


def test_an_oncelog_is_told_with_its_broker(server: Server) -> None:
    found = look(server.bootstrap_servers)
    assert set(verdicts(found).values()) == {Verdict.OK}
    assert list(verdicts(found)) == ["server", "idempotence", "broker 1"]
    assert found[0].facts["is_oncelog"]
    assert found[2].facts["advertised"] == server.bootstrap_servers


def test_nobody_there_is_missing_and_of_several_one_is_enough(server: Server) -> None:
    (only,) = look("127.0.0.1:1")
    assert only.verdict is Verdict.MISSING
    assert only.words == "127.0.0.1:1: connect failed: Connection refused"
    assert "oncelog serve" in only.remedy
    first, *rest = look(f"127.0.0.1:1,{server.bootstrap_servers}")
    assert (first.name, first.verdict) == ("brokers", Verdict.NOTE)
    assert set(verdicts(rest).values()) == {Verdict.OK}


def test_a_name_that_nobody_knows_is_told_from_an_address_where_nobody_is() -> None:
    (only,) = look("kafka.invalid:9092")
    assert "cannot be resolved" in only.words
    assert "Docker" in only.remedy


def test_what_never_answers_is_waited_for_no_longer_than_was_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (only,) = look(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
    assert only.verdict is Verdict.MISSING
    assert "no answer within 0.05 s" in only.words


@pytest.mark.parametrize(
    ("address", "why"), [("127.0.0.1:1", "Connection refused"), ("broker.invalid:9092", "cannot be resolved")]
)
def test_an_advertised_address_that_leads_nowhere_is_missing(address: str, why: str) -> None:
    with advertising(address) as server:
        broker = look(bound(server))[-1]
    assert broker.verdict is Verdict.MISSING
    assert f"advertises {address}, which this machine cannot use" in broker.words
    assert why in broker.words
    assert "set advertised.listeners of broker 1" in broker.remedy


def test_an_advertised_address_at_which_another_cluster_answers_is_missing(server: Server) -> None:
    with advertising(server.bootstrap_servers) as liar:
        broker = look(bound(liar))[-1]
    assert broker.verdict is Verdict.MISSING
    assert "where cluster" in broker.words


def test_releases_are_told_by_what_they_were_the_first_to_speak() -> None:
    assert kafka_release({1: (4, 18)}) == "4.1"
    assert kafka_release({1: (4, 17)}) == "4.0"
    assert kafka_release({1: (0, 13), 61: (0, 0), 65: (0, 0)}) == "3.1"
    assert kafka_release({1: (0, 12), 61: (0, 0)}) == "2.8"
    assert kafka_release({1: (0, 10)}) == "2.1"
    assert kafka_release({1: (0, 8)}) is None


def test_an_oncelog_that_binds_pids_is_one_and_has_no_leases() -> None:
    with Server(settings={"oncelog.bind.pids": "true"}) as server:
        found = {each.name: each for each in look(server.bootstrap_servers)}
    assert found["server"].facts["is_oncelog"]
    assert found["idempotence"].words == "idempotent producers; saved ones find where they were (DescribeProducers)"
