"""The experiment with a pipeline on Spark in between, whose processes are killed, too."""

from pathlib import Path

import numpy as np

from oncelog.chaos.outcome import Options, Pipeline, Verdict
from oncelog.chaos.pipeline import outputs_of
from oncelog.chaos.plan import Target
from oncelog.chaos.report import lines
from oncelog.chaos.running import run


def test_what_a_pipeline_must_write_is_none_one_or_two_rows_a_message() -> None:
    assert outputs_of(np.array([0, 1, 2, 3, 4, 5], np.int64)).tolist() == [2, 4, 5, 8, 10, 11]
    assert outputs_of(np.array([], np.int64)).tolist() == []


def test_each_row_of_a_pipeline_is_there_once_whoever_is_killed(tmp_path: Path) -> None:
    targets = frozenset({Target.DRIVER, Target.EXECUTOR, Target.RESPONSES})
    options = Options(messages=45_000, rate=5_000, partitions=2, targets=targets, every=10_000, spark=Pipeline())
    found = run(options, tmp_path)
    assert found.written is not None
    assert found.written.confirmed == 45_000
    assert found.verdict is Verdict.EXACT, lines(found)
    assert {each.target for each in found.happened} == targets
    assert any(line.startswith("rows written") for line in lines(found))
