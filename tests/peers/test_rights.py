"""Who may do what is what a real Kafka lets them do: request by request, right by right, refusal by refusal."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from oncelog.security.bindings import Binding, Permission
from oncelog.security.operations import Operation
from oncelog.server.api_rights import NEEDS
from tests.peers import rights
from tests.peers.apache import quick_kafka
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
    own = {"lease_pid", "resume_pid", "describe_leases", "api_versions"}
    assert rights.QUESTIONS.keys() == NEEDS.keys() - own
