"""A flow with the face of a streaming query: to its end, from batch to batch, failed."""

from typing import Any

import pytest

from oncelog.flow.errors import FlowRefused
from tests.peers.server_process import ServerProcess
from tests.runner.flows import Billing, everything
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
