"""The experiment as a whole, small: it says exact where everything is, and it can say that it is not."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncelog.chaos import guard
from oncelog.chaos.experiment import run
from oncelog.chaos.life import free_ports
from oncelog.chaos.outcome import Options, Outcome, Progress, Verdict
from oncelog.chaos.page import as_html
from oncelog.chaos.plan import Target
from oncelog.chaos.report import as_json, lines
from oncelog.chaos.stopped import Stopped
from oncelog.cli import main
from oncelog.client import Admin, TopicPartition
from oncelog.embedded import Server
from tests.chaos.lying_proxy import LyingProxy

EVERYTHING = frozenset({Target.CONNECTIONS, Target.RESPONSES, Target.SERVER, Target.PRODUCER})


def outcome_of(folder: Path, **more: Any) -> Outcome:
    return run(Options(**{"messages": 20_000, "rate": 10_000, "every": 2_000} | more), folder)


def test_with_everything_killed_each_message_stands_there_once(tmp_path: Path) -> None:
    found = outcome_of(tmp_path, targets=EVERYTHING, partitions=3, messages=30_000)
    assert found.verdict is Verdict.EXACT, lines(found)
    assert found.result.confirmed == found.result.all.received == 30_000
    assert found.idle_targets == []
    assert {each.target for each in found.happened} == EVERYTHING


@pytest.mark.parametrize("client", ["oncelog", pytest.param("librdkafka", marks=pytest.mark.thorough)])
def test_without_idempotence_what_was_sent_again_is_found_twice(tmp_path: Path, client: str) -> None:
    found = outcome_of(tmp_path, targets={Target.RESPONSES}, client=client, is_idempotent=False)
    assert found.verdict is Verdict.NOT_EXACT
    assert found.result.all.duplicates > 0
    assert found.result.missing == 0
    assert sum(run.duplicates for run in found.result.runs) == found.result.all.duplicates
    assert "JUMP BACK" in "\n".join(lines(found))


@pytest.mark.thorough
def test_a_producer_that_saves_only_its_position_writes_again_what_it_cannot_know(tmp_path: Path) -> None:
    """The sink that retries blindly."""
    found = outcome_of(tmp_path, targets={Target.PRODUCER}, client="librdkafka", every=5_000)
    assert found.verdict is Verdict.NOT_EXACT
    assert found.result.all.duplicates > 0


def test_what_was_confirmed_and_is_lost_is_found_missing(tmp_path: Path) -> None:
    """The log loses what it has acknowledged: here because somebody deletes it."""
    deleted: list[Progress] = []

    def delete(progress: Progress) -> None:
        if progress.confirmed >= 5_000 and not deleted:
            deleted.append(progress)
            gone = admin.delete_records([TopicPartition("chaos", 0, 1_000)])
            assert all(each.result().low_watermark == 1_000 for each in gone.values())

    with Server() as server, Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        options = Options(messages=20_000, rate=10_000, servers=server.bootstrap_servers)
        found = run(options, tmp_path, delete)
    assert deleted
    assert found.verdict is Verdict.NOT_EXACT
    assert (found.result.missing, found.result.all.duplicates) == (1_000, 0)
    assert found.result.missing_examples[0] == 0


def test_a_proxy_that_drops_what_it_has_acknowledged_is_caught(tmp_path: Path) -> None:
    """Without idempotence, whose sequences would tell the client at once."""
    with LyingProxy(frozenset({20, 40, 41})) as liar, Server(settings=liar.settings) as server:
        liar.connect_to(server.broker.ports["PLAINTEXT"])
        options = Options(messages=20_000, rate=10_000, servers=server.bootstrap_servers, is_idempotent=False)
        found = run(options, tmp_path)
    assert liar.lost == 3
    assert found.verdict is Verdict.NOT_EXACT
    assert found.result.confirmed == 20_000
    assert found.result.missing == 20_000 - found.result.all.unique > 3
    assert found.result.all.duplicates == 0


def test_a_fault_that_was_asked_for_and_hit_nothing_proves_nothing(tmp_path: Path) -> None:
    found = outcome_of(tmp_path, targets={Target.SERVER}, messages=500, every=10_000)
    assert found.result.is_exact
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "server" in lines(found)[-1]


@pytest.mark.thorough
def test_the_same_seed_plans_the_same_and_the_report_says_both(tmp_path: Path) -> None:
    one, other = (
        outcome_of(tmp_path / name, targets={Target.CONNECTIONS}, every=1_000, seed=9) for name in ("one", "other")
    )
    said = as_json(one)
    assert said["planned"] == as_json(other)["planned"]
    assert len(said["happened"]) == len(one.happened) > 0
    assert json.loads(json.dumps(said)) == said
    page = as_html(one)
    assert page.count("<svg") == 2
    assert f"<td class=n>{20_000:,}</td>" in page


def test_the_command_says_its_verdict_by_its_exit_code(tmp_path: Path) -> None:
    order = ["chaos", "--messages", "8000", "--rate", "8000", "--every", "1000", "--report", str(tmp_path / "report")]
    done = CliRunner().invoke(main, [*order, "--kill", "responses"])
    assert done.exit_code == Verdict.EXACT, done.output
    assert (tmp_path / "report" / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "report" / "report.json").read_text())["verdict"] == "exact"
    done = CliRunner().invoke(main, [*order, "--kill", "responses", "--idempotence", "off"])
    assert done.exit_code == Verdict.NOT_EXACT, done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kill", "servr"), "--kill knows no 'servr'; the nearest known one is server"),
        (("--kill", "server", "--servers", "127.0.0.1:1"), "nothing of yours is killed"),
        (("--kill", "driver"), "the pipeline that --spark puts in between"),
        (("--spark", "--kill", "orphan"), "--kill orphan and orphan-driver are of --flow"),
        (("--flow", "--spark-cluster", "--kill", "orphan-driver"), "keeps its executors"),
        (("--spark", "--cluster", "--kill", "driver"), "a Spark cluster for the pipeline is --spark-cluster"),
        (("--cluster", "6"), "--cluster is how many brokers there are, 2 to 5"),
        (("--cluster", "3", "--servers", "127.0.0.1:1"), "--servers names yours"),
        (("--cluster", "3", "--console"), "--console shows one server"),
        (("--cluster", "3", "--kill", "server"), "say leader or follower"),
        (("--kill", "rolling"), "--kill rolling is of the brokers that --cluster starts"),
        (("--spark", "--messages", "500000001"), "takes 500,000,000 at most"),
        (("--messages", "5", "--minutes", "1"), "say one of them"),
        (("--keep",), "--keep is for a Kafka of yours"),
        (("--minutes", "nan"), "--minutes is a number"),
        (("--servers", "foo:bar"), '"foo:bar" is not a host or host:port'),
    ],
)
def test_what_is_asked_for_wrongly_is_said_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(main, ["chaos", *arguments])
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.thorough
def test_a_reader_that_has_seen_enough_changes_no_verdict(tmp_path: Path) -> None:
    """Without idempotence a killed producer writes again what came after its last position."""
    order = ["--messages", "4000", "--rate", "8000", "--idempotence", "off", "--kill", "producer", "--every", "1000"]
    command = [sys.executable, "-m", "oncelog", "chaos", *order, "-q", "--report", str(tmp_path / "report")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as experiment:
        assert experiment.stdout is not None
        experiment.stdout.close()
    assert experiment.returncode == int(Verdict.NOT_EXACT)
    told = json.loads((tmp_path / "report" / "report.json").read_text())
    assert told["counts"]["duplicates"] > 0 == told["counts"]["missing"]


def test_where_a_pipeline_could_not_be_killed_none_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guard, "PROCESSES", tmp_path / "proc")
    done = CliRunner().invoke(main, ["chaos", "--spark"])
    assert done.exit_code == 1
    assert "--no-spark" in done.output


def test_a_folder_in_which_no_report_can_be_written_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["chaos", "--messages", "10", "--report", str(tmp_path / "file" / "report")])
    assert done.exit_code == 1
    assert done.output.startswith("Error: --report: nothing can be written to "), done.output


def test_where_no_kafka_answers_it_is_told_at_once_and_how_to_name_another(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["chaos", "--messages", "10", "--servers", f"127.0.0.1:{free_ports(1)[0]}"])
    assert done.exit_code == 1
    assert "no Kafka answers at 127.0.0.1:" in done.output
    assert "--servers names another one" in done.output


# --- a Kafka of the user's --------------------------------------------------------------------------------------------


def test_a_topic_that_is_there_already_is_neither_used_nor_deleted(tmp_path: Path) -> None:
    with Server() as server, Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        options = Options(messages=100, topic="mine", servers=server.bootstrap_servers, is_kept=True)
        run(options, tmp_path)
        with pytest.raises(Stopped, match="there is a topic 'mine' already") as stopped:
            run(replace(options, is_kept=False), tmp_path)
        assert "left on" not in str(stopped.value)
        assert "mine" in admin.list_topics().topics


@pytest.mark.parametrize("end", [KeyboardInterrupt, Stopped])
def test_what_ends_an_experiment_early_leaves_no_topic_that_is_not_named(
    tmp_path: Path, end: type[BaseException]
) -> None:
    def stop(progress: Progress) -> None:
        if progress.confirmed:
            raise end("now")

    with Server() as server, Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        options = Options(messages=10_000_000, rate=10_000, servers=server.bootstrap_servers)
        with pytest.raises(end) as ended:
            run(options, tmp_path, stop)
        is_there = "chaos" in admin.list_topics().topics
    assert is_there == (end is Stopped)
    assert (f"left on {server.bootstrap_servers}: chaos" in str(ended.value)) == is_there


def test_what_a_process_said_at_last_keeps_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> Outcome:
        raise Stopped("it ended by itself:\nfirst\nsecond\n")

    monkeypatch.setattr("oncelog.chaos.experiment.run", stop)
    done = CliRunner().invoke(main, ["chaos", "--messages", "10"])
    assert (done.exit_code, done.output) == (1, "Error: it ended by itself:\nfirst\nsecond\n")
