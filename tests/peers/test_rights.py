"""Who may do what is what a real Kafka lets them do: request by request, right by right, refusal by refusal."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from oncelog.security.bindings import Binding, Permission
from oncelog.security.operations import Operation
from oncelog.server.api_rights import NEEDS
from tests.peers import rights, rights_of_transactions, rights_questions
from tests.peers.apache import quick_kafka
from tests.peers.jars import kafka_java
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.questions.asking import settled
from tests.raw import RawConnection

pytestmark = pytest.mark.thorough


class Pair(NamedTuple):
    kafka: int  # their ports
    oncelog: int


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("rights")
    settings = rights.SETTINGS | {"group.initial.rebalance.delay.ms": "0"}
    with (
        quick_kafka(folder / "kafka", settings) as kafka,
        OncelogProcess(folder / "oncelog", settings=settings) as oncelog,
    ):
        for port in (kafka.port, oncelog.port):
            with RawConnection(port) as connection:
                rights.prepare(connection)
        yield Pair(kafka.port, oncelog.port)


def cases() -> Iterator[tuple[str, tuple[Binding, ...]]]:
    """Of each request: no right, each of those that it asks for, all of them, all but what is denied, and others."""
    for name, needs in NEEDS.items():
        if name not in rights.QUESTIONS:
            continue
        wanted = list(dict.fromkeys(rights.rule(need.resource, need.operation) for need in needs))
        yield name, ()
        for each in wanted:
            yield name, (each,)
        yield name, tuple(wanted)
        yield name, tuple(rights.rule(each.resource, Operation.ALL) for each in wanted)
        yield name, tuple(rights.rule(each.resource, Operation.DESCRIBE) for each in wanted)
        yield name, (*wanted, *(each._replace(permission=Permission.DENY, principal="User:*") for each in wanted))


@pytest.mark.parametrize(
    ("name", "given"),
    [pytest.param(*case, id=f"{case[0]}-{number}") for number, case in enumerate(cases())],
)
def test_the_answer_is_kafkas(pair: Pair, name: str, given: tuple[Binding, ...]) -> None:
    for port in pair:
        with RawConnection(port) as connection:
            rights.take_back(connection)
            assert set(rights.give(connection, given)) <= {"none"}
    for ask in rights.QUESTIONS[name]:
        with rights.asking(pair.oncelog) as ours, rights.asking(pair.kafka) as kafkas:
            answer = ask(ours)
            assert settled(lambda asked=ask, at=kafkas: asked(at), answer) == answer, ask.__name__  # type: ignore[misc]


def test_every_request_that_kafka_has_is_asked() -> None:
    asked = rights.QUESTIONS["produce"]
    assert rights_questions.write in asked and rights_of_transactions.writes_in_transactions in asked
    own = {"lease_pid", "resume_pid", "describe_leases", "api_versions", "sasl_handshake", "sasl_authenticate"}
    assert rights.QUESTIONS.keys() == NEEDS.keys() - own


def test_kafka_acls_adds_lists_and_removes(pair: Pair) -> None:
    """Kafka's own tool, from the host that may do everything, says the same of both."""
    said = []
    for port in pair:
        about = ["--topic", "tool-topic", "--resource-pattern-type", "prefixed"]
        whom = ["--allow-principal", "User:tool", "--allow-host", "10.1.2.3", "--operation", "Read"]
        kafka_acls(port, "--add", *whom, *about)
        listed = settled(lambda port=port: "User:tool" in kafka_acls(port, "--list"), True, 30)  # type: ignore[misc]
        shown = kafka_acls(port, "--list", "--topic", "tool-topic-1", "--resource-pattern-type", "match")
        kafka_acls(port, "--remove", "--force", *whom, *about)
        gone = settled(lambda port=port: "User:tool" in kafka_acls(port, "--list"), False, 30)  # type: ignore[misc]
        said.append((listed, gone, [line for line in shown.splitlines() if "tool" in line]))
    assert said[0] == said[1]
    assert said[0][:2] == (True, False) and said[0][2]


def kafka_acls(port: int, *words: str) -> str:
    command = kafka_java("org.apache.kafka.tools.AclCommand", "--bootstrap-server", f"127.0.0.1:{port}", *words)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
