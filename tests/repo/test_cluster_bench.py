"""The figures of three brokers: the command names its rows, and writes the page from what runs kept."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import cluster
from bench.arena import KAFKA, ONCELOG
from bench.cluster_client import Trickle
from bench.cluster_rows import ROWS

ABOUT = {
    "when": "2026-11-23T22:00:00+00:00",
    "machine": {"cores": 2, "processor": "some", "memory_gb": 24, "kernel": "6", "python": "3.11.7"},
    "load": 0.1,
    "seconds": 4.0,
    "rounds": 3,
    "kills": 6,
    "pauses": 2,
    "kafka": "4.3.0",
}


def told(*arguments: str) -> str:
    done = CliRunner().invoke(cluster.main, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_rows_are_named() -> None:
    assert told("--list").split() == [row.name for row in ROWS]
    assert told("--list", "--only", "kill") == "kill\n"
    assert "python -m bench.cluster" in told("--help")


def test_a_row_that_is_not_there_is_refused() -> None:
    assert CliRunner().invoke(cluster.main, ["--only", "kills"]).exit_code == 2


def test_the_page_has_a_place_for_the_figures() -> None:
    page = cluster.PAGE.read_text()
    assert page.count(cluster.BEGIN) == page.count(cluster.END) == 1
    assert page.index(cluster.BEGIN) < page.index(cluster.END)


def test_the_page_is_written_from_what_runs_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{cluster.BEGIN}\nold\n{cluster.END}\nbehind\n")
    monkeypatch.setattr(cluster, "PAGE", page)
    runs = [
        {
            "small": {ONCELOG: {"records_per_s": [9.0, 8.0, 7.0]}, KAFKA: {"records_per_s": [2.0, 4.0, 2.0]}},
            "kill": {ONCELOG: {"p50_s": [2.0], "worst_s": [2.5]}},
        },
        {"kill": {ONCELOG: {"p50_s": [0.5], "worst_s": [3.5]}, KAFKA: {"p50_s": [9.0], "worst_s": [10.0]}}},
    ]
    kept = [tmp_path / f"{number}.json" for number in range(len(runs))]
    for path, figures in zip(kept, runs, strict=True):
        path.write_text(json.dumps({"about": ABOUT, "figures": figures}))
    told(*(word for path in kept for word in ("--from", str(path))))
    written = page.read_text()
    assert written.startswith("before\n") and written.endswith("\nbehind\n")
    assert "old" not in written
    assert (
        "| acks=all, librdkafka, one record of 100 bytes a request: records/s | 8 | 2 | Kafka | 4.00 | ≥ 3x | yes |"
        in written
    )
    assert "| kill -9 of a leader to the first acks=all: p50, s | 0.5 | 9 | Kafka | 0.06 | ≤ 1 s | yes |" in written
    assert "| the same: worst, s | 3.5 | 10 | Kafka | 0.35 | ≤ 3 s | **no** |" in written
    assert written.count("kill -9 of a leader") == 1, "only as it was measured last"


def test_a_gap_is_one_of_a_single_partition() -> None:
    trickle = Trickle("127.0.0.1:1", "t", 2, 1)
    trickle.acknowledged = [(0, 0.0, 1.0), (1, 0.0, 1.5), (0, 1.0, 2.0), (1, 1.0, 4.0), (0, 2.0, 2.5)]
    assert trickle.longest_gap_s() == 2.5
    assert trickle.first_after(1.0, 1e9) == 1.0
    assert trickle.latencies_ms(1.0) == [1000.0, 3000.0, 500.0]
