"""`oncelog flow`: what is said of flows from outside, by their registers and journals."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from oncelog.embedded import Server
from oncelog.flow import Dead
from oncelog.flow.errors import FlowFailed, FlowRefused
from oncelog.runner import operating
from tests.cli.running import Oncelog, ended
from tests.repo.tree import ROOT
from tests.runner.flows import Billing, everything, make_topic
from tests.waiting import until

GIVE_UP_S = 30.0
Written = Callable[[Billing], str]


@pytest.fixture
def billing(servers: str, topic: str) -> Billing:
    found = Billing(topic, servers)
    found.make_topics()
    return found


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """The flow as a module of the folder that commands run in; gives what they call it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def write(billing: Billing) -> str:
        module = "flow_" + "".join(letter if letter.isalnum() else "_" for letter in billing.name)
        (tmp_path / f"{module}.py").write_text(
            "from tests.runner.flows import Billing\n"
            f"billing = Billing({billing.name!r}, {billing.servers!r})\n"
            "flow = billing.flow()\n"
        )
        return f"{module}:flow"

    return write


def test_a_flow_is_run_to_its_end_listed_and_described(billing: Billing, written: Written) -> None:
    oncelog = Oncelog(billing.servers)
    billing.send(range(40))
    oncelog("flow run", written(billing), "--until", "end", "--run-id", "noon")
    billing.check(40)
    (row,) = [each for each in oncelog("flow", "-J").json if each["flow"] == billing.name]
    assert (row["stages"], row["cells"], row["order"], row["runs"], row["open_runs"]) == (2, 5, "run", 1, 0)
    billing.send(range(40, 43))
    told = oncelog("flow describe", billing.name, "-J").json
    (run,) = told["runs"]
    assert (run["run"], run["is_finished"]) == ("noon", True)
    first, second = told["stages"]
    taken = [each for cell in first["cells"] for each in cell["inputs"]]
    assert [each["topic"] for each in taken] == 2 * [billing.orders.name]
    assert sum(each["next_offset"] for each in taken) == 40 and sum(each["lag"] for each in taken) == 3
    assert sum(cell["state_entries"] for cell in second["cells"]) == billing.customers
    assert sum(each["slots"] for cell in second["cells"] for each in cell["outputs"]) == 40
    assert all(cell["holder"]["has_left"] and not cell["holder"]["may_be_at_work"] for cell in first["cells"])
    assert sum(cell["written"] for cell in first["cells"]) == 40 and not any(cell["late"] for cell in first["cells"])
    head, *lines = oncelog("flow describe", billing.name).lines
    assert all(line.split()[-2:] == [billing.flow().program.code, "left"] for line in lines[:5])
    assert "WRITTEN" in head and "LATE" in head


def test_who_is_at_work_is_described(own_server: Server, topic: str) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    run = billing.flow().start(billing.properties)
    billing.send(range(10))
    billing.wait_for(10)
    told = Oncelog(billing.servers)("flow describe", billing.name, "-J").json
    run.stop()
    holders = [cell["holder"] for stage in told["stages"] for cell in stage["cells"]]
    assert all(each["may_be_at_work"] and not each["has_left"] for each in holders)


def test_why_a_cell_has_stopped_is_described_until_mended_code_goes_on(billing: Billing) -> None:
    oncelog = Oncelog(billing.servers)
    billing.send_raw("o1", b"{")
    with pytest.raises(FlowFailed) as failed:
        billing.flow().run(billing.properties, until="end")
    stages = oncelog("flow describe", billing.name, "-J").json["stages"]
    whys = [cell["holder"]["why"] for stage in stages for cell in stage["cells"]]
    assert [each for each in whys if each] == [str(failed.value)]
    told = oncelog("flow describe", billing.name)
    assert str(failed.value) in told.lines and sum(line.endswith(" stopped") for line in told.lines) == 1
    dead = Dead(f"{billing.name}-dead", partitions=2)
    make_topic(billing.servers, dead.name, dead.partitions)
    billing.flow("2", otherwise=dead).run(billing.properties, until="end")
    assert str(failed.value) not in oncelog("flow describe", billing.name).lines


def test_the_state_of_one_key_and_of_all(billing: Billing, written: Written) -> None:
    oncelog = Oncelog(billing.servers)
    billing.send(range(40))
    oncelog("flow run", written(billing), "--until", "end")
    lines = [json.loads(line) for line in oncelog("flow state", billing.name, "owed").lines]
    assert {each["key"]: each["state"]["amount"] for each in lines} == billing.totals(40)
    (line,) = oncelog("flow state", billing.name, "owed", "c3").lines
    assert json.loads(line)["state"] == {"amount": billing.totals(40)["c3"]}
    some = oncelog("flow state", billing.name, "owed", "--limit", "2")
    assert len(some.lines) == 2 and "more than these 2" in some.err
    assert "the nearest known one is owed" in oncelog.run("flow state", billing.name, "owd").refusal
    assert "no state of the key nobody" in oncelog.run("flow state", billing.name, "owed", "nobody").refusal


def test_a_flow_that_is_stopped_by_a_signal_says_so_by_its_exit_code(
    own_server: Server, topic: str, written: Written
) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    oncelog = Oncelog(billing.servers)
    target = written(billing)
    process = oncelog.start("flow run", target)
    try:
        billing.send(range(10))
        billing.wait_for(10)
        process.send_signal(signal.SIGTERM)
        assert ended(process).code == 143
    finally:
        process.kill()
    told = oncelog("flow describe", billing.name, "-J").json
    assert all(cell["holder"]["has_left"] for stage in told["stages"] for cell in stage["cells"])


@pytest.mark.parametrize("seed", [None, pytest.param("7", marks=pytest.mark.thorough)])
def test_hashes_are_the_same_in_each_process_that_runs_a_flow(
    own_server: Server, topic: str, written: Written, tmp_path: Path, seed: str | None
) -> None:
    """Under the seed that Spark gives its workers, or the one that somebody chose."""
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    billing.send(range(1))
    module, _, _ = written(billing).partition(":")
    with (tmp_path / f"{module}.py").open("a") as code:
        code.write(
            "from oncelog.flow import Flow\n"
            "from tests.runner.flows import Owed\n"
            "flow = Flow(billing.name, version='1')\n"
            "flow.read(billing.orders).map(lambda _: Owed(hash('anna'))).write(billing.sums)\n"
        )
    around = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    own = around if seed is None else {**around, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-m", "oncelog", "flow", "run", f"{module}:flow", "--until", "end"]
    subprocess.run([*command, "-b", billing.servers], env=own, check=True, timeout=60, capture_output=True)
    known = {**around, "PYTHONHASHSEED": seed or "0"}
    found = subprocess.check_output([sys.executable, "-c", "print(hash('anna'))"], env=known, timeout=60)
    assert [owed.amount for _, owed in billing.written()] == [int(found)]


def test_what_is_printed_makes_the_topics_that_the_flow_would_make(servers: str, topic: str, written: Written) -> None:
    billing = Billing(topic, servers)
    oncelog = Oncelog(servers)
    target = written(billing)
    lines = [shlex.split(line) for line in oncelog("flow topics", target, "--format", "sh").lines]
    assert len(lines) == 6 and all(
        line[:4] == ["kafka-topics.sh", "--bootstrap-server", servers, "--create"] for line in lines
    )
    for line in lines:
        said = {option: value for option, value in pairwise(line) if option in ("--topic", "--partitions")}
        configs = [value for option, value in pairwise(line) if option == "--config"]
        oncelog("topics create", said["--topic"], "-p", said["--partitions"], *(w for c in configs for w in ("-c", c)))
    assert oncelog("flow topics", target, "--format", "sh").lines == []
    billing.send(range(20))
    oncelog("flow run", target, "--until", "end")
    billing.check(20)
    rows = {row["role"]: row for row in oncelog("flow topics", target, "--format", "json").json}
    assert all(row["found"] == row["partitions"] for row in rows.values())
    assert rows["journal"]["bytes"] > 100 and rows["journal"]["configs"]["cleanup.policy"] == "compact"
    assert rows["through"]["configs"] == {"message.timestamp.type": "LogAppendTime"}


def test_a_paused_flow_takes_no_input_until_it_goes_on(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    oncelog = Oncelog(servers)
    run = billing.flow().start(billing.properties)
    billing.send(range(20))
    billing.wait_for(20)
    oncelog("flow pause", billing.name)
    until(lambda: "(paused)" in run.status["message"], "the pause")
    billing.send(range(20, 40))
    assert "is paused already" in oncelog("flow pause", billing.name).err
    run.stop()
    another = billing.flow().start(billing.properties)
    until(
        lambda: "(paused)" in another.status["message"] and another.recent_progress, "a look of one that starts paused"
    )
    assert len(billing.written()) == 20
    oncelog("flow resume", billing.name)
    billing.wait_for(40)
    another.stop()
    billing.check(40)
    assert "is not paused" in oncelog("flow resume", billing.name).err


def test_a_flow_is_removed_with_its_topics_once_nobody_is_at_work(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    oncelog = Oncelog(servers)
    run = billing.flow().start(billing.properties)
    billing.send(range(20))
    billing.wait_for(20)
    assert "is held by a process that has not said goodbye" in oncelog.run("flow delete", billing.name).refusal
    run.stop()
    register = f"oncelog.flow.{billing.name}"
    expected = [f"{register}.orders", f"{register}.{billing.between.name}", billing.between.name]
    assert oncelog("flow delete", billing.name, "--dry-run").lines == [*sorted(expected), register]
    assert oncelog("flow delete", billing.name).lines == [*sorted(expected), register]
    assert billing.name in oncelog.run("flow describe", billing.name).refusal
    left = {row["topic"] for row in oncelog("topics", "-J").json}
    assert left.isdisjoint([*expected, register]) and {billing.orders.name, billing.sums.name} <= left


def ran(billing: Billing) -> None:
    billing.flow().run(billing.properties, until="end")


def test_a_flow_that_begins_anew_counts_nothing_twice_and_writes_again_what_it_reads_again(
    servers: str, topic: str
) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    oncelog = Oncelog(servers)
    billing.send(range(40))
    ran(billing)
    rows = oncelog("flow reset", billing.name, "-J").json
    assert sum(row["again"] for row in rows if row["stage"] == "orders") == 40
    assert sum(row["again"] for row in rows if row["stage"] == billing.between.name) == 0
    ran(billing)
    assert billing.state() == billing.totals(40)
    assert len(billing.written()) == len(everything(servers, billing.between.name)) == 80


def test_one_stage_begins_anew_with_what_its_input_holds(own_server: Server, topic: str) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    oncelog = Oncelog(billing.servers)
    billing.send(range(40))
    ran(billing)
    assert oncelog("flow reset", billing.name, "--stage", billing.between.name, "--dry-run", "-J").json
    ran(billing)
    assert len(billing.written()) == 40
    oncelog("flow reset", billing.name, "--stage", billing.between.name)
    ran(billing)
    assert billing.state() == billing.totals(40)
    assert len(billing.written()) == 80 and len(everything(billing.servers, billing.between.name)) == 40


def test_a_flow_begins_anew_with_what_comes_from_now_on(own_server: Server, topic: str) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    billing.send(range(40))
    ran(billing)
    Oncelog(billing.servers)("flow reset", billing.name, "--to-latest")
    billing.send(range(3))
    ran(billing)
    assert billing.state() == billing.totals(3) and len(billing.written()) == 43


def test_a_reset_that_did_not_come_to_its_end_keeps_the_flow_from_beginning(
    own_server: Server, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    oncelog = Oncelog(billing.servers)
    run = billing.flow().start(billing.properties)
    assert "has not said goodbye" in oncelog.run("flow reset", billing.name).refusal
    run.stop()

    async def cut_off(look: object, names: list[str]) -> None:
        raise FlowRefused("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(operating, "remove", cut_off)
        assert oncelog.run("flow reset", billing.name).refusal == "cut off"
    with pytest.raises(FlowRefused, match="a reset was begun and has not come to its end"):
        ran(billing)
    oncelog("flow reset", billing.name)
    billing.send(range(10))
    ran(billing)
    billing.check(10)


def test_what_is_damaged_is_named_and_the_other_flows_are_listed(own_server: Server, topic: str) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    oncelog = Oncelog(billing.servers)
    billing.send(range(10))
    ran(billing)
    register, journal = f"oncelog.flow.{topic}-bad", f"oncelog.flow.{topic}.orders"
    oncelog("topics create", register, "-p", "1")
    oncelog("produce", "-t", register, "-k", "fx", stdin=b"hello\n")
    rows = {row["flow"]: row for row in oncelog("flow", "-J").json}
    assert rows[f"{topic}-bad"]["error"].startswith(f"{register}: the record with the key b'fx' at offset 0")
    assert (rows[topic]["cells"], rows[topic]["error"]) == (5, None)
    oncelog("produce", "-t", journal, "-p", "1", "-k", "kx", stdin=b"hello\n")
    damage = f"flow {topic}, stage orders, cell 1: {journal}-1: the record with the key b'kx' at offset "
    first, second = oncelog("flow describe", topic, "-J").json["stages"]
    assert [(cell["commit"] is None, (cell["damage"] or "")[: len(damage)]) for cell in first["cells"]] == [
        (False, ""),
        (True, damage),
    ]
    assert all(cell["holder"]["has_left"] and not cell["damage"] for cell in second["cells"])
    lines = oncelog("flow describe", topic).lines
    assert [line.split()[0] for line in lines[1:6]] == 2 * ["orders"] + 3 * [billing.between.name]
    assert "not known" in lines[2] and any(line.startswith(damage) for line in lines)
    oncelog("topics delete", register)


def test_a_flow_whose_journals_are_damaged_begins_anew_when_a_person_says_that_nobody_is_left(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one cell something else has written into the journal, of another one a byte is another on the disk."""
    data_dir, journal = str(tmp_path), f"oncelog.flow.{topic}.orders"
    with Server(data_dir=data_dir) as server:
        billing = Billing(topic, server.bootstrap_servers)
        billing.make_topics()
        billing.send(range(40))
        ran(billing)
        Oncelog(billing.servers)("produce", "-t", journal, "-p", "0", "-k", "kx", stdin=b"hello\n")
    (log,) = (tmp_path / f"{journal}-1").glob("*.log")
    written = bytearray(log.read_bytes())
    written[len(written) // 2] ^= 1
    log.write_bytes(written)
    monkeypatch.setattr("oncelog.client.saving.read_back.DAMAGED_S", 0.0)  # where the broker is the first to find it
    with Server(data_dir=data_dir) as server:
        billing = Billing(topic, server.bootstrap_servers)
        oncelog = Oncelog(billing.servers)
        run = billing.flow().start(billing.properties)
        until(lambda: "\n" in str(run.exception()), "two cells that stopped")
        failure = str(run.exception())
        for cell, why in ((0, "with the key b'kx'"), (1, " is damaged")):
            assert f"stage orders, cell {cell}: " in failure and why in failure
        assert failure.count("begin the flow anew without it (`oncelog flow reset --damaged`)") == 2
        billing_held = oncelog.run("flow reset", topic, "--damaged").refusal
        assert f"stage {billing.between.name}, cell 0 is held by a process" in billing_held
        run.stop()
        for command in ("reset", "delete"):
            assert "nor whether a process holds it. End all" in oncelog.run(f"flow {command}", topic).refusal
        rows = oncelog("flow reset", topic, "--damaged", "-J").json
        known = [(row["before"], row["again"]) for row in rows if row["stage"] == "orders"]
        assert known == [(None, None), (None, None)]
        assert all(row["before"] is not None for row in rows if row["stage"] != "orders")
        ran(billing)
        assert billing.state() == billing.totals(40) and len(billing.written()) == 80


def test_a_flow_stops_when_its_register_is_damaged_and_goes_on_with_a_new_one(own_server: Server, topic: str) -> None:
    """Since nobody could pause it."""
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    oncelog = Oncelog(billing.servers)
    run = billing.flow().start(billing.properties)
    billing.send(range(20))
    billing.wait_for(20)
    oncelog("produce", "-t", f"oncelog.flow.{topic}", "-k", "fx", stdin=b"hello\n")
    with pytest.raises(FlowFailed, match=r"flow's register .*delete the topic.*Start the flow again"):
        run.await_termination(GIVE_UP_S)
    oncelog("topics delete", f"oncelog.flow.{topic}")
    billing.send(range(20, 30))
    ran(billing)
    billing.check(30)


@pytest.mark.parametrize("command", ["list", "run {} --until end", "backfill {} may"])
def test_a_cluster_that_is_not_there_is_one_line(topic: str, written: Written, command: str) -> None:
    target = written(Billing(topic, "127.0.0.1:1"))
    said = Oncelog("127.0.0.1:1").run(f"flow {command.format(target)}", "-m", "0.2")
    assert said.refusal.startswith("no broker answered within 0.2 s"), said


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(0)", "cannot be imported: SystemExit: 0"),
        ("flow = 1 +", "cannot be imported: SyntaxError: invalid syntax"),
        ("import nowhere_at_all", "needs nowhere_at_all, which is not installed"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, code: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    module = "flow_" + "".join(letter if letter.isalnum() else "_" for letter in topic)
    (tmp_path / f"{module}.py").write_text(f"{code}\n")
    said = Oncelog("127.0.0.1:1").run("flow run", f"{module}:flow")
    assert said.refusal.startswith(f"{module}:flow: {module} {words}") and said.code == 1


def test_a_folder_that_was_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "gone").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert "the folder that this shell is in was removed" in Oncelog("127.0.0.1:1").run("flow run", "a:b").refusal


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("describe nobody", 1, "there is no flow nobody"),
        ("state nobody owed", 1, "there is no flow nobody"),
        ("reset nobody --to-earliest --to-latest", 2, "--to-earliest and --to-latest are two beginnings: say one"),
        ("run billing", 2, "expected MODULE:FLOW"),
        ("run billing.py:flow", 2, "expected a module, not its file: billing:flow (see"),
        ("run ../jobs/billing.py:flow", 2, "expected a module, not its file: billing:flow in the folder ../jobs"),
        ("run nowhere_at_all:flow", 1, "there is no module nowhere_at_all"),
        ("run tests.runner.flows:flow", 1, "there is no flow in tests.runner.flows; no flow is there"),
        ("run tests.runner.flows:Billing", 1, "Billing in tests.runner.flows is no Flow"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(own_server: Server, command: str, code: int, words: str) -> None:
    action, *arguments = command.split()
    said = Oncelog(own_server.bootstrap_servers).run(f"flow {action}", *arguments)
    assert (words in said.refusal, said.code) == (True, code), said
