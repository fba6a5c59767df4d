"""What a running flow tells a scraper."""

import re
import signal
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from oncelog.embedded import Server
from oncelog.flow import FlowRefused
from tests.cli.running import Oncelog, ended
from tests.repo.tree import ROOT
from tests.runner.flows import Billing
from tests.runner.test_commands import Written
from tests.runner.test_commands import written as written
from tests.server.test_metrics import Samples, parse
from tests.waiting import until

FLOW = "oncelog_flow_"


def scraped(address: str) -> str:
    with urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def total(samples: Samples, name: str, stage: str) -> float:
    return sum(
        value for (family, pairs), value in samples.items() if family == FLOW + name and dict(pairs)["stage"] == stage
    )


def test_how_far_each_cell_is_what_it_wrote_and_which_one_stopped(
    own_server: Server, topic: str, written: Written
) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    behind = billing.between.name
    process = Oncelog(billing.servers).start("flow run", written(billing), "--metrics", "127.0.0.1:0")
    try:
        assert process.stderr is not None
        address = next(line for line in process.stderr if b"metrics on" in line).decode().split()[-1]
        billing.send(range(40))
        until(lambda: total(parse(scraped(address)), "written_total", behind) == 40, "40 sums told")
        text = scraped(address)
        found = parse(text)
        billing.send_raw("o1", b"no order")
        until(lambda: total(parse(scraped(address)), "stopped", "orders") == 1, "the stop of a cell")
        process.send_signal(signal.SIGTERM)
        assert ended(process).code == 1, "a cell has stopped"
    finally:
        process.kill()
    for stage, cells in (("orders", 2), (behind, 3)):
        assert total(found, "records_total", stage) == total(found, "written_total", stage) == 40
        assert total(found, "lag", stage) == total(found, "stopped", stage) == 0
        assert total(found, "lives_total", stage) == cells and total(found, "commits_total", stage) >= 1
    assert total(found, "state_entries", behind) == billing.customers
    assert found[f"{FLOW}paused", (("flow", billing.name),)] == 0
    families = dict(re.findall(r"# TYPE (\S+) (\S+)", text))
    assert len(found) <= 2 + (len(families) - 2) * 5, "a line for each cell, and no more"
    page = Path(ROOT, "docs", "flow.md").read_text()
    told = dict(re.findall(r"# HELP (\S+) (.+)", text))
    assert told and all(f"| `{name}` | {families[name]} | {said} |" in page for name, said in told.items())


def test_a_second_start_whose_address_is_taken_leaves_the_cells_to_the_first(
    own_server: Server, topic: str, written: Written
) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    oncelog = Oncelog(billing.servers)
    run = billing.flow().start(billing.properties, metrics="127.0.0.1:0")
    assert (
        f"metrics cannot be served on {run.metrics}: "
        in oncelog.run("flow run", written(billing), "--metrics", str(run.metrics)).refusal
    )
    billing.send(range(10))
    billing.wait_for(10)
    run.stop()
    assert run.exception() is None
    assert "expected HOST:PORT" in oncelog.run("flow run", written(billing), "--metrics", "here").err


@pytest.mark.parametrize("share", [False, True])
def test_a_run_in_python_has_the_same(own_server: Server, topic: str, *, share: bool) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    run = billing.flow().start(billing.properties, share=share, metrics="127.0.0.1:0")
    billing.send(range(10))
    billing.wait_for(10)
    assert run.metrics is not None
    until(lambda: total(parse(scraped(str(run.metrics))), "written_total", billing.between.name) == 10, "sums told")
    run.stop()
    with pytest.raises(URLError):
        scraped(run.metrics)
    with pytest.raises(FlowRefused, match="metrics=here: expected HOST:PORT"):
        billing.flow().start(billing.properties, metrics="here")
    with pytest.raises(FlowRefused, match=r"metrics=0\.0\.0\.0:0: a flow knows no users"):
        billing.flow().start(billing.properties, metrics="0.0.0.0:0")
    cells = [each for each in run.cells if each.stage == billing.between.name]
    assert len(cells) == 3 and sum(each.written for each in cells) == sum(each.records for each in cells) == 10
    stages = run.last_progress and run.last_progress["stages"]
    assert stages and stages[billing.between.name]["written"] == 10 and not run.is_paused


def test_of_cells_held_elsewhere_nothing_is_told_that_only_their_holder_knows(own_server: Server, topic: str) -> None:
    """What was committed before somebody looks is not counted as taken since."""
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    _share(billing, 0, 40)
    _share(billing, 40, 60)


def _share(billing: Billing, before: int, sent: int) -> None:
    run = billing.flow().start(billing.properties, share=True)
    billing.send(range(before, sent))
    billing.wait_for(sent)
    until(lambda: sum(each.written for each in run.cells) == 2 * sent, "what stands in the journals")
    for stage in ("orders", billing.between.name):
        assert sum(each.records for each in run.cells if each.stage == stage) == sent - before
    assert all(each.state is each.is_stopped is each.lag is None for each in run.cells), "no series of these"
    assert run.last_progress and run.last_progress["stages"][billing.between.name]["state"] is None
    run.stop()
