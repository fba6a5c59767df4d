"""A real Kafka and oncelog are asked the same about groups; what differs must be listed here, with the reason."""

from pathlib import Path

import pytest

from oncelog.embedded import Server
from tests.peers.apache import quick_kafka
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.server.groups.questions import QUESTIONS, answers
from tests.server.groups.questions.answers import await_coordinator
from tests.server.groups.questions.mixed_groups import as_its_policy_lets_it

# Kafka's is an accident of its implementation; ours makes the client take a new id and join again.
DIFFERENCES = {"a pending id with an instance": ("unknown_server_error", "unknown_member_id")}


@pytest.mark.peers
def test_every_answer_about_groups_is_kafkas(kafka: ServerProcess) -> None:
    kafkas = answers(kafka.bootstrap_servers, "asked")
    with Server() as server:
        ours = answers(server.bootstrap_servers, "asked")
    found = {name: (kafkas[name], ours[name]) for name in QUESTIONS if kafkas[name] != ours[name]}
    assert found == DIFFERENCES


@pytest.mark.peers
@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_groups_go_over_as_the_policy_lets_them_on_kafka(policy: str, tmp_path: Path) -> None:
    settings = {"group.consumer.migration.policy": policy}
    with quick_kafka(tmp_path, settings) as kafka, RawConnection(kafka.bootstrap_servers) as c:
        await_coordinator(c)
        kafkas = as_its_policy_lets_it(c, "asked")
    with Server(settings=settings) as server, RawConnection(server.bootstrap_servers) as c:
        assert as_its_policy_lets_it(c, "asked") == kafkas
