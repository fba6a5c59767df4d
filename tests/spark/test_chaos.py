"""The experiment with a pipeline on Spark in between, whose processes are killed, too."""

from pathlib import Path

import pytest

from oncelog.chaos.experiment import run
from oncelog.chaos.guard import PROCESSES, pids
from oncelog.chaos.outcome import Options, Pipeline, Verdict
from oncelog.chaos.page import as_html
from oncelog.chaos.plan import ORPHANS, Target
from oncelog.chaos.report import as_json, lines
from tests.peers.jars import spark_connector_jars

# Batches are large, and these seeds kill in the middle of them: what is killed at a batch's end may come too late.
SEED_OF_MANY_KILLS = 17
SEED_OF_ONE_KILL_A_BATCH = 29
SEED_OF_ONE_KILL = 29


def test_each_row_of_a_pipeline_is_there_once_whoever_is_killed(tmp_path: Path) -> None:
    targets = frozenset({Target.DRIVER, Target.EXECUTOR, Target.RESPONSES})
    options = Options(
        messages=180_000,
        rate=30_000,
        partitions=2,
        targets=targets,
        every=33_000,
        seed=SEED_OF_MANY_KILLS,
        spark=Pipeline(rows_a_batch=60_000),
    )
    found = run(options, tmp_path)
    assert found.written is not None
    assert found.written.confirmed == 180_000
    assert found.verdict is Verdict.EXACT, "\n".join(lines(found))
    assert {each.target for each in found.happened} == targets
    assert any("rows written" in line for line in lines(found))


@pytest.mark.thorough
def test_of_a_flow_each_row_and_the_state_are_exact_whoever_is_killed(tmp_path: Path) -> None:
    targets = frozenset({Target.DRIVER, Target.EXECUTOR, Target.RESPONSES, Target.SERVER})
    options = Options(
        messages=120_000, rate=5_000, partitions=2, targets=targets, every=12_000, spark=Pipeline(sink="flow")
    )
    found = run(options, tmp_path)
    assert found.written is not None
    assert (found.written.confirmed, found.timers) == (123_870, 3_870)
    assert found.verdict is Verdict.EXACT, "\n".join(lines(found))
    assert {each.target for each in found.happened} == targets
    assert "through Spark, local, a flow of two stages" in lines(found)


@pytest.mark.thorough
def test_orphans_of_a_flow_write_nothing_twice_behind_the_back_of_those_that_took_over(tmp_path: Path) -> None:
    options = Options(
        messages=80_000, rate=4_000, partitions=2, targets=ORPHANS, every=22_000, spark=Pipeline(sink="flow")
    )
    found = run(options, tmp_path)
    assert found.verdict is Verdict.EXACT, "\n".join(lines(found))
    assert {each.target for each in found.happened if each.hit_work} == ORPHANS


@pytest.mark.thorough
def test_on_a_cluster_a_flow_goes_on_while_executors_die(tmp_path: Path) -> None:
    pipeline = Pipeline(sink="flow", is_cluster=True)
    options = Options(
        messages=100_000,
        rate=5_000,
        partitions=2,
        targets=frozenset({Target.EXECUTOR}),
        every=25_000,
        spark=pipeline,
    )
    found = run(options, tmp_path)
    assert found.verdict is Verdict.EXACT, "\n".join(lines(found))
    assert "exitStatus 137" in (tmp_path / "pipeline" / "cluster" / "worker.log").read_text(), "no executor died"
    assert "through Spark, on a cluster, a flow of two stages" in lines(found)
    assert _those_that_know(tmp_path) == [], "of the cluster nothing is left"


@pytest.mark.thorough
def test_on_a_cluster_the_sealed_sink_writes_each_row_once_while_executors_die(tmp_path: Path) -> None:
    pipeline = Pipeline(sink="sealed", is_cluster=True, rows_a_batch=80_000)
    options = Options(
        messages=160_000,
        partitions=2,
        targets=frozenset({Target.EXECUTOR}),
        every=60_000,
        seed=SEED_OF_ONE_KILL_A_BATCH,
        spark=pipeline,
    )
    found = run(options, tmp_path)
    assert found.verdict is Verdict.EXACT, "\n".join(lines(found))
    assert "exitStatus 137" in (tmp_path / "pipeline" / "cluster" / "worker.log").read_text(), "no executor died"
    assert "through Spark, on a cluster, the sealed sink" in lines(found)
    assert _those_that_know(tmp_path) == [], "of the cluster nothing is left"


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", ["direct", "sealed", "flow"])
def test_on_brokers_that_go_each_row_of_a_pipeline_is_there_once(tmp_path: Path, sink: str) -> None:
    """The source and the sink are at them, and so is what the sink or the flow remembers."""
    targets = frozenset({Target.LEADER, Target.PAUSE, Target.ROLLING, Target.DRIVER})
    options = Options(
        messages=60_000, rate=2_000, partitions=2, brokers=3, targets=targets, every=9_000, seed=7, spark=Pipeline(sink)
    )
    found = run(options, tmp_path)
    assert found.verdict is Verdict.EXACT, "\n".join(lines(found))
    assert {each.target for each in found.happened} == targets
    assert found.replicas is not None
    assert found.replicas.damage == ()


@pytest.mark.thorough
def test_a_sink_that_retries_blindly_is_caught(tmp_path: Path) -> None:
    """Spark's own: all messages are one batch, its driver dies when rows of it are there, and it writes them again."""
    jars = ",".join(str(path) for path in sorted(spark_connector_jars().glob("*.jar")))
    pipeline = Pipeline(sink="kafka", conf={"spark.jars": jars}, rows_a_batch=150_000)
    options = Options(
        messages=150_000, targets=frozenset({Target.DRIVER}), every=110_000, seed=SEED_OF_ONE_KILL, spark=pipeline
    )
    found = run(options, tmp_path)
    assert found.verdict is Verdict.NOT_EXACT, lines(found)
    assert found.written is not None
    assert found.written.missing == 0
    assert found.written.all.duplicates > 0
    (killed,) = found.happened
    assert killed.hit_work
    said = as_json(found)
    assert (said["options"]["pipeline"]["sink"], said["spark"]["started again by itself"]) == ("kafka", 0)
    assert str(found.written.all.duplicates) in as_html(found).replace(",", "")


def _those_that_know(folder: Path) -> list[int]:
    """All processes that have something in this folder, by their variables."""
    found = []
    for pid in pids():
        try:
            if str(folder).encode() in (PROCESSES / str(pid) / "environ").read_bytes():
                found.append(pid)
        except OSError:
            continue  # it has ended
    return found
