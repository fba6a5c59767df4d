"""The examples do what they say, as a user starts them; in the session of these tests, which they find running."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, Rec, batch

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> list[str]:
    """What the program writes to its standard output."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 0
    return capsys.readouterr().out.splitlines()


def test_words_are_counted_over_a_restart(
    spark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run(capsys, monkeypatch, "spark_word_count")
    assert said == [
        "14 counts were written, the largest of each word:",
        "   4  to",
        "   2  be",
        "   1  dream",
        "   1  is",
        "   1  more",
    ]


def test_orders_get_their_customers_names(
    spark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run(capsys, monkeypatch, "spark_enrichment")
    assert said == [
        "direct: run again, a batch of this query yields the same rows in the same order.",
        "Anna orders apples",
        "Anna orders plums",
        "Bert orders pears",
        "Carla orders figs",
        "somebody orders nuts",
    ]


def test_json_becomes_columns_and_what_is_none_goes_to_a_topic_of_its_own(
    spark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run(capsys, monkeypatch, "spark_json_columns")
    assert said == [
        'good: {"sensor":"cellar","at":"2025-06-01T12:00:00.000Z","fahrenheit":57.2}',
        'good: {"sensor":"cellar","at":"2025-06-01T13:00:00.000Z","fahrenheit":58.1}',
        'good: {"sensor":"roof","at":"2025-06-01T12:00:00.000Z","fahrenheit":88.7}',
        "bad: no JSON at all",
        'bad: {"sensor": "roof", "at": "2025-06-01T13:00:00Z", "celsius": "hot"}',
    ]


def test_a_topic_is_copied_from_a_cluster_worked_on_here_and_copied_back(
    spark: Any,
    server: ServerProcess,
    raw: RawConnection,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw.create_topic(topic, partitions=2)
    for partition in range(2):
        rows = batch([Rec(b"%d" % number if number % 5 else None, key=b"k") for number in range(50)])
        assert raw.produce(topic, partition, rows).error_code == 0
    said = run(
        capsys,
        monkeypatch,
        "spark_copy",
        "--servers",
        server.bootstrap_servers,
        "--topic",
        topic,
        "--back",
        f"{topic}-b",
    )
    assert said == [
        "from the cluster: 100 records in 2 partitions",
        "on this machine: 80 of them are in order",
        "back to the cluster: 80 records",
    ]
