"""The experiment's pipeline, without Spark: what it must write, how its session is set, when it is killed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from oncelog.chaos import pipeline_watch
from oncelog.chaos.checkpoint import NONE, Batches, batches, is_committed, messages_before
from oncelog.chaos.guard import Guard
from oncelog.chaos.kafka_login import Kafka
from oncelog.chaos.outcome import Options, Pipeline
from oncelog.chaos.pipeline import PipelineEnded, PipelineLives, PipelineOrder, due_of, outputs_of, settings_of
from oncelog.chaos.pipeline_watch import PipelineWatch
from oncelog.chaos.plan import Event, Target
from oncelog.cli import main


def test_what_a_pipeline_must_write_is_none_one_or_two_rows_a_message() -> None:
    assert outputs_of(np.array([0, 1, 2, 3, 4, 5], np.int64)).tolist() == [2, 4, 5, 8, 10, 11]
    assert outputs_of(np.array([], np.int64)).tolist() == []


def test_of_what_somebody_else_sent_nothing_is_due() -> None:
    assert due_of(np.array([4, -1, 5, 6, 2**60], np.int64), 6).tolist() == [8, 10, 11]


def test_sparks_own_sink_is_fetched_unless_somebody_says_where_it_lies() -> None:
    fetched = settings_of(Pipeline(sink="kafka"), {})["spark.jars.packages"]
    assert fetched.startswith("org.apache.spark:spark-sql-kafka-0-10_2.13:4.")
    assert "spark.jars.packages" not in settings_of(Pipeline(sink="kafka", conf={"spark.jars": "own.jar"}), {})
    assert "spark.jars.packages" not in settings_of(Pipeline(), {})


def test_what_the_user_says_of_the_session_goes_before_the_cluster_and_that_before_the_rest() -> None:
    told = Pipeline(conf={"spark.driver.memory": "3g"})
    found = settings_of(told, {"spark.master": "spark://127.0.0.1:1", "spark.driver.memory": "2g"})
    assert (found["spark.master"], found["spark.driver.memory"]) == ("spark://127.0.0.1:1", "3g")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--spark-cluster",), "--spark-cluster is of the pipeline that --spark puts in between"),
        (("--sink", "sealed"), "--sink is of the pipeline"),
        (("--spark-conf", "spark.a=b"), "--spark-conf is of the pipeline"),
        (("--flow", "--sink", "sealed"), "it does not write with --sink sealed"),
        (("--spark", "--spark-conf", "spark.a"), "--spark-conf is KEY=VALUE"),
        (("--spark", "--spark-conf", "a=b"), "keys begin with `spark.`"),
        (("--spark", "--spark-conf", "spark.master=spark://mine:7077"), "nothing of yours"),
    ],
)
def test_what_is_asked_for_wrongly_is_said_before_anything_starts(arguments: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(main, ["chaos", "--messages", "1", *arguments])
    assert done.exit_code == 2
    assert words in done.output


def test_a_driver_that_ends_again_and_again_is_given_up_with_what_it_said(tmp_path: Path) -> None:
    order = PipelineOrder("nobody:1", "in", "out", str(tmp_path), "kafka", 1, 1, {"spark.jars.packages": "a:b:c"})
    with Guard() as guard, PipelineLives(guard, tmp_path, order) as lives:
        lives.kill()
        (tmp_path / "pipeline.log").write_text("there is no package\n")
        lives.keep_alive(1)
        lives.kill()
        with pytest.raises(PipelineEnded, match=r"itself 2 times:\nthere is no package(.|\n)*spark\.jars=FILE"):
            lives.keep_alive(1)
    assert lives.restarts == 2


# --- the checkpoint ---------------------------------------------------------------------------------------------------


def begin(checkpoint: Path, batch: int, messages: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"chaos":{{"0":{messages},"1":{messages}}}}}\n')


def commit(checkpoint: Path, batch: int) -> None:
    (checkpoint / "commits").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}\n")


def test_a_batch_is_under_way_from_its_offsets_to_its_commit(tmp_path: Path) -> None:
    assert batches(tmp_path) == Batches()
    begin(tmp_path, 0, 10)
    assert batches(tmp_path).under_way == 0
    (tmp_path / "offsets" / ".0.crc").touch()
    (tmp_path / "offsets" / ".7.half-written.tmp").touch()
    commit(tmp_path, 0)
    assert batches(tmp_path) == Batches(begun=0, committed=0)
    assert batches(tmp_path).under_way == NONE
    for batch in range(1, 11):
        begin(tmp_path, batch, 10 * batch)
    assert batches(tmp_path).under_way == 10
    assert is_committed(tmp_path, 0)
    assert not is_committed(tmp_path, 10)


def test_messages_of_a_batch_are_those_of_all_partitions(tmp_path: Path) -> None:
    begin(tmp_path, 3, 25)
    assert messages_before(tmp_path, 3, "chaos") == 50
    assert messages_before(tmp_path, NONE, "chaos") == 0


# --- the moment of a kill ---------------------------------------------------------------------------------------------


class Lives:
    """In the place of the processes."""

    def __init__(self, guard: Guard, folder: Path, order: PipelineOrder) -> None:
        assert order.write == "chaos-written"

    def __enter__(self) -> "Lives":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def kill(self) -> None:
        pass

    def kill_worker(self, number: int) -> bool:
        return True

    def keep_alive(self, most_restarts: int) -> None:
        pass


class Case:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, kills: list[Event], sink: str = "direct") -> None:
        self.ends = {"chaos": 100, "chaos-written": 0}
        self.now_s = 100.0
        self.checkpoint = folder / "checkpoint"
        monkeypatch.setattr(pipeline_watch, "create_topic", lambda kafka, topic, partitions: None)
        monkeypatch.setattr(pipeline_watch, "end_offsets", lambda kafka, topic, partitions: [self.ends[topic]])
        monkeypatch.setattr(pipeline_watch, "monotonic_s", lambda: self.now_s)
        monkeypatch.setattr(pipeline_watch, "PipelineLives", Lives)
        options = Options(messages=100)
        self.watch = PipelineWatch(Guard(), folder, Kafka("nobody:1"), options, Pipeline(sink), kills)

    def look(self, *, written: int, after_s: float = 1.0) -> list[tuple[Event, int]]:
        self.now_s += after_s
        self.ends["chaos-written"] = written
        return list(self.watch.look())


DRIVER = Event(10, Target.DRIVER)
WORKER = Event(20, Target.EXECUTOR)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    found = Case(tmp_path, monkeypatch, [DRIVER, WORKER])
    with found.watch:
        yield found


def test_a_kill_that_is_due_waits_for_rows_of_a_batch_to_arrive(case: Case) -> None:
    begin(case.checkpoint, 0, 5)
    assert case.look(written=4) == []
    commit(case.checkpoint, 0)
    assert case.look(written=10) == [], "due, and no batch is under way"
    begin(case.checkpoint, 1, 15)
    assert case.look(written=10) == [], "under way, and no row of it is there"
    assert case.look(written=11) == [(DRIVER, 20)], "15 of each partition, less 5 of each in the batch before"
    assert case.look(written=11) == []


def test_after_enough_waiting_any_moment_of_a_batch_will_do(case: Case) -> None:
    begin(case.checkpoint, 0, 5)
    assert case.look(written=10) == []
    assert case.look(written=10, after_s=pipeline_watch.PATIENCE_S - 2) == []
    assert case.look(written=10, after_s=3) == [(DRIVER, 10)]


def test_a_batch_that_was_over_after_all_was_not_hit(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(case.checkpoint, 0, 5)
    case.look(written=4)
    monkeypatch.setattr(Lives, "kill", lambda self: commit(case.checkpoint, 0))
    assert case.look(written=10) == [(DRIVER, 0)]


def test_what_came_too_late_is_killed_again_in_the_next_batch_a_few_times(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[Event, int]] = []
    for batch in range(pipeline_watch.MOST_MISSES + 2):
        begin(case.checkpoint, batch, 5 + batch)
        monkeypatch.setattr(Lives, "kill", lambda self, batch=batch: commit(case.checkpoint, batch))
        case.look(written=10 + 2 * batch)
        killed += case.look(written=11 + 2 * batch)
    assert killed == [(DRIVER, 0)] * (pipeline_watch.MOST_MISSES + 1), "then it is given up"


def test_what_hit_at_the_second_time_is_not_killed_a_third_time(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(case.checkpoint, 0, 5)
    case.look(written=4)
    monkeypatch.setattr(Lives, "kill", lambda self: commit(case.checkpoint, 0))
    assert case.look(written=10) == [(DRIVER, 0)]
    monkeypatch.setattr(Lives, "kill", lambda self: None)
    begin(case.checkpoint, 1, 6)
    case.look(written=11)
    assert case.look(written=12) == [(DRIVER, 2)]
    assert case.look(written=13) == []


def test_a_worker_is_killed_when_there_is_one(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(case.checkpoint, 0, 5)
    case.look(written=4)
    assert case.look(written=10) == [(DRIVER, 10)]
    monkeypatch.setattr(Lives, "kill_worker", lambda self, number: False)
    assert case.look(written=20) == []
    assert case.look(written=21) == []
    monkeypatch.setattr(Lives, "kill_worker", lambda self, number: True)
    assert case.look(written=22) == [(WORKER, 10)]


def test_it_looks_more_often_while_something_is_due(case: Case) -> None:
    assert case.watch.pace_s == pipeline_watch.LOOK_S
    case.look(written=10)
    assert case.watch.pace_s == pipeline_watch.LOOK_WHEN_DUE_S
    begin(case.checkpoint, 0, 5)
    assert case.look(written=10, after_s=pipeline_watch.LOOK_WHEN_DUE_S / 2) == []
    assert case.look(written=10, after_s=pipeline_watch.LOOK_WHEN_DUE_S) == []
    assert case.look(written=11, after_s=pipeline_watch.LOOK_WHEN_DUE_S) == [(DRIVER, 10)]


def test_it_is_through_when_the_batch_with_the_last_message_is_over(case: Case) -> None:
    assert not case.watch.is_through()
    begin(case.checkpoint, 0, 49)
    commit(case.checkpoint, 0)
    assert not case.watch.is_through(), "98 of 100"
    begin(case.checkpoint, 1, 50)
    assert not case.watch.is_through()
    commit(case.checkpoint, 1)
    assert case.watch.is_through()


@pytest.mark.parametrize(("sink", "has_state"), [("direct", True), ("sealed", False), ("kafka", False)])
def test_only_the_direct_sink_has_made_a_topic_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, has_state: bool
) -> None:
    case = Case(tmp_path, monkeypatch, [], sink)
    assert case.watch.topics == ["chaos-written"], "the query has not begun"
    case.checkpoint.mkdir()
    (case.checkpoint / "metadata").write_text('{"id":"q"}')
    assert case.watch.topics == ["chaos-written", *["oncelog.sink.q"] * has_state]
