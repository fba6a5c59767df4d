"""Leases that end again and again under load. What a change costs in time is measured by `leases`, not tested."""

from pathlib import Path

from tests.client.faults.leases import experiment

SECONDS = 4
PARTITIONS = 4


def test_leases_of_a_second_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    result = experiment(tmp_path, seconds=SECONDS, lifetime_ms=1000, line_ms=10, partitions=PARTITIONS)
    assert result.is_exact, result
    assert result.leases >= (SECONDS - 2) * PARTITIONS
