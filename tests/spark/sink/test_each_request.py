"""A connection that ends at any one request of two batches, or at its answer: every row is there once."""

from types import SimpleNamespace

import pytest

from oncelog.chaos.faults import Direction, Fault, Kind
from oncelog.chaos.proxy import FaultProxy
from oncelog.spark.sink.errors import MayPass
from oncelog.spark.sink.lane import LaneMessage
from tests.peers.server_process import ServerProcess
from tests.spark.sink.support import Rows, Sink, cut, make_topic, numbers, values, values_of

pytestmark = pytest.mark.thorough
BATCHES: list[list[Rows]] = [
    [numbers(0, 400), numbers(400, 700)],
    [numbers(700, 1000), numbers(1000, 1100), numbers(1100, 1200)],
]
ATTEMPTS, MOST_REQUESTS = 4, 200


def write(sink: Sink, batch: int) -> list[LaneMessage]:
    """As Spark does it: what may pass is tried again."""
    for attempt in range(ATTEMPTS):
        try:
            messages = [sink.lane(batch, lane, cut(rows, 50), attempt) for lane, rows in enumerate(BATCHES[batch])]
            sink.commit(batch, messages)
            return messages
        except MayPass:
            continue
    raise AssertionError(f"batch {batch} did not get through in {ATTEMPTS} attempts")


@pytest.mark.parametrize(
    ("counter", "kind", "direction"),
    [("requests", Kind.CUT, Direction.UP), ("answers", Kind.SWALLOW, Direction.DOWN)],
)
def test_a_connection_that_ends_at_any_request_costs_and_repeats_no_row(
    oncelog_server: ServerProcess, topic: str, counter: str, kind: Kind, direction: Direction
) -> None:
    for at in range(1, MOST_REQUESTS):
        output = f"{topic}-{at}"
        make_topic(oncelog_server, output, 3)
        fault = Fault(kind=kind, counter=counter, at=at, direction=direction, part=0.5)
        with FaultProxy(oncelog_server.bootstrap_servers, [fault]) as proxy:
            sink = Sink(SimpleNamespace(bootstrap_servers=proxy.bootstrap_servers), output)
            for batch in range(len(BATCHES)):
                write(sink, batch)
            is_hit = bool(proxy.happened)
        assert values(oncelog_server, output) == values_of(*BATCHES[0], *BATCHES[1]), f"after a fault at {counter} {at}"
        if not is_hit:
            return
    raise AssertionError(f"two batches take more than {MOST_REQUESTS} requests")
