"""A real Kafka and oncelog are asked the same about groups; what differs must be listed here, with the reason."""

from pathlib import Path

import pytest

from oncelog.embedded import Server
from tests.peers.apache import quick_kafka
from tests.server.groups.questions import QUESTIONS, answers

# Kafka's is an accident of its implementation; ours makes the client take a new id and join again.
DIFFERENCES = {"a pending id with an instance": ("unknown_server_error", "unknown_member_id")}


@pytest.mark.peers
def test_every_answer_about_groups_is_kafkas(tmp_path: Path) -> None:
    with quick_kafka(tmp_path) as kafka:
        kafkas = answers(kafka.bootstrap_servers, "asked")
    with Server() as server:
        ours = answers(server.bootstrap_servers, "asked")
    found = {name: (kafkas[name], ours[name]) for name in QUESTIONS if kafkas[name] != ours[name]}
    assert found == DIFFERENCES
