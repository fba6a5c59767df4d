"""Each peer in the table of docs/compatibility.md does what its row says, and its row says what stands in the code."""

from pathlib import Path

import pytest

from tests.peers.jars import MissingPeer, need_or_skip
from tests.peers.matrix.page import DONE, PEERS, row_of, rows
from tests.peers.matrix.steps import SETTINGS, World
from tests.peers.oncelog_process import OncelogProcess


@pytest.mark.thorough
@pytest.mark.timeout(900)  # where it is built first
@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.is_quick])
def test_a_client_does_what_its_row_says(name: str, tmp_path: Path) -> None:
    try:
        PEERS[name].install()
    except MissingPeer as missing:
        need_or_skip(missing)
    with OncelogProcess(tmp_path, settings=SETTINGS) as server:
        PEERS[name].run(World(server, tmp_path))
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


def test_the_page_has_a_row_for_each_client_in_its_present_version() -> None:
    found = rows()
    assert list(found) == list(PEERS)
    for name, row in found.items():
        assert row == row_of(PEERS[name], DONE, row.kafka), "python -m tests.peers.matrix writes it"
