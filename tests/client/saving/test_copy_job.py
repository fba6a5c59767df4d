"""`examples/copy_job.py` is refused before it has bound its group to anything."""

import runpy
import sys
from pathlib import Path

import pytest

from oncelog.client import AdminClient
from oncelog.embedded import Server
from tests.raw import RawConnection

JOB = Path(__file__).parents[3] / "examples" / "copy_job.py"


@pytest.mark.parametrize(
    ("source", "destination", "words"),
    [
        ("copy-slip", "copy-one", "there is no topic copy-slip"),
        ("copy-two", "copy-slip", "there is no topic copy-slip"),
        ("copy-two", "copy-one", "the destination has 1 partitions, and needs the 2 of the source"),
    ],
)
def test_a_slip_in_a_name_is_told_before_the_group_is_bound(
    monkeypatch: pytest.MonkeyPatch, own_server: Server, source: str, destination: str, words: str
) -> None:
    servers = own_server.bootstrap_servers
    with RawConnection(servers) as raw:
        raw.create_topic("copy-one", 1)
        raw.create_topic("copy-two", 2)
    line = f"copy_job.py --servers {servers} --source {source} --destination {destination} --group copies"
    monkeypatch.setattr(sys, "argv", line.split())
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(JOB), run_name="__main__")
    assert ended.value.code == words
    with AdminClient({"bootstrap.servers": servers}) as admin:
        assert "copies" not in [each.group_id for each in admin.list_consumer_groups().result(30)]
        assert "copy-slip" not in admin.list_topics(timeout=30).topics, "nor is it made by being asked for"
