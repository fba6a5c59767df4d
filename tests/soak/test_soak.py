"""kill -9 at random moments under load costs nothing that was acknowledged. The long version: ./dev soak."""

from pathlib import Path

import pytest

from tests.soak.campaign import soak


@pytest.mark.thorough
def test_every_acknowledged_record_survives_kills_once(tmp_path: Path) -> None:
    result = soak(tmp_path, kills=8, seed=20)
    assert result.wrong == []
    assert result.acknowledged > 500
    assert result.commits > 20
