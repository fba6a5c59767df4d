"""A flow in Spark's tasks: to its end, from tenant to tenant, stopped, killed."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from oncelog.chaos.process_tree import command_of
from oncelog.client import AdminClient
from oncelog.clock import wall_s
from oncelog.flow.errors import FlowFailed, FlowRefused
from oncelog.runner.layout import Layout
from oncelog.spark.flows.driving import shared_out
from oncelog.spark.flows.tenant import Tenant
from tests.lives.processes import children
from tests.peers.server_process import ServerProcess
from tests.runner.flows import WAITS_S, Billing, everything
from tests.runner.test_files import filing, send
from tests.runner.test_metrics import scraped
from tests.waiting import until


@pytest.fixture
def billing(server: ServerProcess, topic: str) -> Billing:
    found = Billing(topic, server.bootstrap_servers)
    found.make_topics()
    return found


def test_cells_are_spread_over_the_tasks() -> None:
    layout = Layout(Billing("b", "nowhere:1").flow().program)
    assert shared_out(layout, 2) == [
        {"orders": [0], "b-by-customer": [0, 2]},
        {"orders": [1], "b-by-customer": [1]},
    ]
    assert len(shared_out(layout, 9)) == 5


def test_a_flow_comes_to_its_end_in_sparks_tasks(spark: Any, billing: Billing) -> None:
    billing.send(range(1_000))
    billing.flow().run(billing.properties, spark=spark, until="end", run_id="noon")
    billing.check(1_000)
    billing.flow().run(billing.properties, spark=spark, until="end", run_id="noon")  # is finished
    billing.check(1_000)


@pytest.mark.thorough
def test_tenants_follow_one_another_and_stop_when_they_are_told(spark: Any, billing: Billing) -> None:
    run = billing.flow().start(billing.properties, spark=spark, tenure=4)
    sent = 0
    until_s = monotonic() + 14
    while monotonic() < until_s:
        billing.send(range(sent, sent + 20))
        sent += 20
    assert run.is_active
    run.stop()
    assert run.exception() is None
    billing.flow().run(billing.properties, until="end")  # without Spark: the same flow goes on
    billing.check(sent)


def test_a_cell_that_stops_is_heard_of_at_once_and_its_run_is_not_finished(spark: Any, billing: Billing) -> None:
    """The others go on, in the next tenancy."""
    billing.send(range(20))
    run = billing.flow().start(billing.properties, spark=spark, run_id="noon", metrics="127.0.0.1:0")
    billing.wait_for(20)
    bad = next(number for number in range(100) if billing.orders.partition_of(b"o%d" % number) == 0)
    billing.send_raw(f"o{bad}", b"no order")
    words = f"{billing.name}, stage orders, cell 0: the record at offset "
    until(lambda: words in str(run.exception()), words)
    others = [number for number in range(20, 60) if billing.orders.partition_of(b"o%d" % number) == 1]
    billing.send(others)
    billing.wait_for(20 + len(others))
    assert f'oncelog_flow_info{{flow="{billing.name}"' in scraped(str(run.metrics))
    run.stop()
    with pytest.raises(FlowFailed, match="cell 0: the record at offset"):
        billing.flow().run(billing.properties, spark=spark, until="end", run_id="late")
    with pytest.raises(FlowFailed, match="cell 0: the record at offset"):
        billing.flow().run(billing.properties, spark=spark, until="end", run_id="late")


def test_a_run_ends_where_a_cell_stops_and_the_next_try_is_whole(spark: Any, billing: Billing) -> None:
    """The last of its stages hears from the one before it that there is no more, this time."""
    billing.send(range(100))
    with pytest.raises(FlowFailed, match="an order of 8"):
        billing.in_a_row({8}).run(billing.properties, spark=spark, until="end", run_id="noon", tasks=2)
    billing.in_a_row(()).run(billing.properties, spark=spark, until="end", run_id="noon", tasks=2)
    billing.check_amounts(100)


@pytest.mark.thorough
def test_an_output_that_is_deleted_is_heard_of_at_once_and_other_stages_go_on(spark: Any, billing: Billing) -> None:
    billing.send(range(20))
    run = billing.flow().start(billing.properties | {"topic.metadata.refresh.interval.ms": "500"}, spark=spark)
    billing.wait_for(20)
    with AdminClient(billing.properties) as admin:
        admin.delete_topics([billing.sums.name])[billing.sums.name].result(30)
    words = f"its output {billing.sums.name} was deleted while it ran"
    until(lambda: words in str(run.exception()), words, give_up_seconds=WAITS_S)
    billing.send(range(20, 40))
    until(lambda: len(everything(billing.servers, billing.between.name)) == 40, "regrouped", give_up_seconds=WAITS_S)
    assert run.is_active
    run.stop()


def test_spark_reads_the_files_of_a_flow_as_a_table(
    spark: Any, server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    send(server.bootstrap_servers, topic, range(30))
    filing(topic, tmp_path).run({"bootstrap.servers": server.bootstrap_servers}, until="end")
    rows = spark.read.parquet(str(tmp_path)).select("amount", "hour", "kafka_offset").collect()
    assert sorted(row.amount for row in rows) == list(range(30))
    assert {row.hour for row in rows} == {f"2026-06-21T{hour:02}" for hour in range(3)}


def test_a_session_with_one_slot_is_refused(billing: Billing) -> None:
    class One:
        class sparkContext:
            defaultParallelism = 1

    with pytest.raises(FlowRefused, match="has one slot, and a flow leaves one free"):
        billing.flow().start(billing.properties, spark=One())


@pytest.mark.parametrize(("later_ms", "failure"), [(0, ""), (1, "a run that started later")])
def test_a_task_that_lost_its_cells_is_not_tried_again(billing: Billing, later_ms: int, failure: str) -> None:
    """To another task of its driver, or to a driver that started later: then its own has to know."""
    billing.send(range(20))
    layout, until_s = Layout(billing.flow().program), wall_s() + 60
    (cells,) = shared_out(layout, 1)
    first = Tenant(billing.flow().program, billing.properties, "one", False, cells, 1_000, 1, until_s, 0.0, "")
    with ThreadPoolExecutor(1) as beside:
        outcome = beside.submit(first, 0)
        billing.wait_for(20)
        second = replace(first, run_id="two", started_ms=1_000 + later_ms, attempt=2, until_end=True)
        second(0)
        billing.send(range(20, 40))  # which the first one takes and cannot commit
        is_complete, stopped, why, _ = json.loads(outcome.result())
    assert wall_s() < until_s
    assert (is_complete, stopped) == (False, [])
    assert failure in why
    assert bool(why) is bool(failure)


def test_a_task_that_waited_for_its_slot_has_its_time_from_then_on(billing: Billing) -> None:
    """Where others have every slot for longer than a tenure, the flow would otherwise stand still for ever."""
    billing.send(range(20))
    (cells,) = shared_out(Layout(billing.flow().program), 1)
    over_s = wall_s() - 1
    late = Tenant(
        billing.flow().program, billing.properties, "one", True, cells, 1_000, 1, over_s, 0.0, "", tenure_s=WAITS_S
    )
    is_complete, stopped, why, cut_by = json.loads(late(0))
    assert (is_complete, stopped, why, cut_by) == (True, [], "", "")
    billing.check(20)


@pytest.mark.thorough
def test_a_backfill_runs_in_sparks_tasks(spark: Any, billing: Billing) -> None:
    billing.send(range(500))
    again = Billing(billing.name, billing.servers)
    again.sums = replace(billing.sums, name=f"{billing.name}-again")
    again.make_topics(again.sums)
    billing.flow().backfill("may", billing.properties, into={billing.sums: again.sums}, spark=spark)
    again.check(500)
    assert billing.count() == 0


@pytest.mark.thorough
def test_killed_workers_repeat_nothing(spark: Any, billing: Billing) -> None:
    run = billing.flow().start(billing.properties, spark=spark, tenure=60)
    sent = 0
    for _ in range(5):
        for _ in range(20):
            billing.send(range(sent, sent + 50))
            sent += 50
        for pid in python_workers():
            os.kill(pid, signal.SIGKILL)
    run.stop()
    billing.flow().run(billing.properties, until="end")
    billing.check(sent)


def python_workers() -> list[int]:
    """Of this process's session: children of the daemon that Spark forks workers from."""
    found = []
    due = [os.getpid()]
    while due:
        for pid in children(due.pop()):
            due.append(pid)
            found.append(pid)
    return [pid for pid in found if b"daemon" in command_of(pid) and not children(pid)]
