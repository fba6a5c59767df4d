"""A flow with the face of a streaming query: to its end, from batch to batch, failed."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import URLError

import pyarrow as pa
import pytest

from oncelog.flow.errors import FlowFailed, FlowRefused
from oncelog.runner.life import CLOCK
from oncelog.spark.flows.streaming import WATCHES, Shares
from tests.cli.running import Oncelog
from tests.peers.server_process import ServerProcess
from tests.runner.flows import Billing, everything
from tests.runner.test_metrics import scraped, total
from tests.server.test_metrics import parse
from tests.waiting import until

WAITS_S = 120


@pytest.fixture
def billing(server: ServerProcess, topic: str) -> Billing:
    found = Billing(topic, server.bootstrap_servers)
    found.make_topics()
    return found


def test_a_query_comes_to_the_end_of_a_run_which_is_finished_then(spark: Any, billing: Billing) -> None:
    billing.send(range(1_000))
    query = billing.flow().stream(billing.properties, spark=spark, until="end", run_id="noon")
    assert query.awaitTermination(WAITS_S)
    billing.check(1_000)
    observed = query.lastProgress["observedMetrics"][f"flow {billing.name}"]
    observed = observed if isinstance(observed, dict) else observed.asDict()
    assert (observed["records"], observed["state"]) == (2_000, billing.customers)
    register = f"oncelog.flow.{billing.name}"
    until(lambda: b"e" in {key[:1] for key, _ in everything(billing.servers, register)}, "the run to be finished")
    billing.send(range(1_000, 1_010))
    again = billing.flow().stream(billing.properties, spark=spark, until="end", run_id="noon")
    assert again.awaitTermination(WAITS_S)
    billing.check(1_000)


def test_a_task_behind_a_cell_that_stopped_does_not_pass_for_the_end(billing: Billing) -> None:
    """Spark may try the other task again, which goes well then, and would take the query for done."""
    billing.send(range(100))
    program, properties = billing.in_a_row({8}).program, billing.properties
    stages = (("orders", 2), (billing.between.name, 3), (billing.later.name, 1))
    cells = [{stage: list(range(count))} for stage, count in stages]
    shares = Shares(program, properties, "noon", True, cells, CLOCK.now().wall_ms, 60.0, {})

    def held(share: int) -> list[pa.RecordBatch]:
        return list(shares.tables(iter([pa.RecordBatch.from_pydict({"value": [share]})])))

    with ThreadPoolExecutor(len(cells)) as beside:
        first, *others = [beside.submit(held, share) for share in range(len(cells))]
    with pytest.raises(FlowFailed, match="an order of 8"):
        first.result()
    for other in others:
        with pytest.raises(FlowFailed, match=r"its run is not at its end: .*(an order of 8|has stopped)"):
            other.result()


def test_a_query_tells_metrics_and_one_that_is_stopped_before_its_end_has_not_finished_the_run(
    spark: Any, billing: Billing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncelog.flow")
    oncelog = Oncelog(billing.servers)
    billing.send(range(40))
    billing.flow().run(billing.properties, until="end")
    oncelog("flow pause", billing.name)
    billing.send(range(40, 80))
    query = billing.flow().stream(billing.properties, spark=spark, until="end", run_id="noon", metrics="127.0.0.1:0")
    (address,) = [words.split()[-1] for words in caplog.messages if "metrics on" in words]
    behind = billing.between.name
    until(
        lambda: total(parse(scraped(address)), "written_total", behind) == 40,
        "what is committed",
        give_up_seconds=WAITS_S,
    )
    assert f'oncelog_flow_paused{{flow="{billing.name}"}} 1' in scraped(address)
    query.stop()
    for thread in threading.enumerate():
        if thread.name == WATCHES:
            thread.join(WAITS_S)
    with pytest.raises(URLError):
        scraped(address)
    oncelog("flow resume", billing.name)
    billing.flow().run(billing.properties, until="end", run_id="noon")
    billing.check(80)


@pytest.mark.thorough
def test_a_batch_follows_the_other_and_a_query_that_is_stopped_leaves_the_flow_to_others(
    spark: Any, billing: Billing
) -> None:
    query = billing.flow().stream(billing.properties, spark=spark, tenure=2)
    sent = 0
    while query.lastProgress is None or query.lastProgress["batchId"] < 1:
        billing.send(range(sent, sent + 50))
        sent += 50
        billing.wait_for(sent)
        assert query.exception() is None
    query.stop()
    billing.flow().run(billing.properties, until="end")
    billing.check(sent)


def test_a_query_fails_with_the_words_of_the_cell_that_stopped(spark: Any, billing: Billing) -> None:
    billing.send_raw("o1", b"not json")
    query = billing.flow().stream(billing.properties, spark=spark, tenure=1)
    until(lambda: not query.isActive, "the query's end", give_up_seconds=WAITS_S)
    assert f"the record at offset 0 of {billing.orders.name}" in str(query.exception())


def test_what_cannot_begin_is_refused_before_there_is_a_query(spark: Any, billing: Billing) -> None:
    with pytest.raises(FlowRefused, match="tasks=0 holds no cell"):
        billing.flow().stream(billing.properties, spark=spark, tasks=0)
    other = Billing(f"{billing.name}-other", billing.servers)
    with pytest.raises(FlowRefused, match="misses topics"):
        other.flow().stream(other.properties, spark=spark)
