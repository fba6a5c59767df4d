"""kill -9 at random moments: a short run of what `python -m tests.client.saving.kills --kills 200` does for hours."""

from pathlib import Path

import pytest

from tests.client.saving.kills import Campaign, server_of
from tests.depth import deeper, scaled
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip

KILLS = 3
KILLS_ON_KAFKA = 8


@deeper
def test_a_copy_job_that_is_killed_again_and_again_copies_every_record_once_on_oncelog(tmp_path: Path) -> None:
    with server_of("oncelog", tmp_path) as server, Campaign(server, tmp_path, seed=11) as campaign:
        tally = campaign.run(scaled(KILLS))
    assert tally.copied > 1_000, "there was something to lose"


@pytest.mark.thorough
@pytest.mark.peers
def test_a_copy_job_that_is_killed_again_and_again_copies_every_record_once_on_kafka(tmp_path: Path) -> None:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with server_of("kafka", tmp_path) as server, Campaign(server, tmp_path, seed=12) as campaign:
        tally = campaign.run(KILLS_ON_KAFKA)
    assert tally.copied > 1_000, "there was something to lose"
