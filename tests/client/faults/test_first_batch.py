"""A broker takes any first sequence of a pid that it does not know: a lost first batch must not be overtaken."""

import pytest

from oncelog.chaos.faults import Direction, Fault, Kind
from oncelog.chaos.proxy import FaultProxy
from oncelog.client.producer.producer import Producer
from tests.client.faults.audit import audit, read_log
from tests.client.faults.case import KAFKA, SERVERS, Case
from tests.client.faults.sending import Told, value_of
from tests.raw import RawConnection, batch

NEW_PID = 1 << 40
RECORDS = 60
# The batch is lost before it is whole, lost when only its answer was left to come, or stored with no answer.
CUTS = {"no byte": 0.0, "half of it": 0.5, "all but an answer": 1.0}


def topic_of(servers: str, request: pytest.FixtureRequest) -> str:
    topic = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    with RawConnection(servers) as raw:
        assert raw.create_topic(topic) == 0
    return topic


def test_kafka_takes_a_second_batch_without_the_first(kafka_servers: str, request: pytest.FixtureRequest) -> None:
    """Why the first one must travel alone: this is the loss that a producer has to prevent. Were the first one to come
    now, it would be refused as out of order."""
    topic = topic_of(kafka_servers, request)
    with RawConnection(kafka_servers) as raw:
        assert raw.produce(topic, 0, batch([b"of nobody"])).error_code.name == "none"
        for first in (10, 0):
            values = [value_of(number) for number in range(first, first + 10)]
            records = batch(values, pid=NEW_PID, epoch=0, sequence=first)
            answer = raw.produce(topic, 0, records)
            assert answer.error_code.name == ("none" if first else "out_of_order_sequence_number")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("passes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("lost_request", [1, 2])
def test_nothing_is_lost_when_the_first_batch_of_a_pid_is(
    server: str, passes: float, lost_request: int, request: pytest.FixtureRequest
) -> None:
    servers = request.getfixturevalue(f"{server}_servers")
    topic = topic_of(servers, request)
    cut = Fault(
        kind=Kind.CUT,
        counter="produce requests",
        at=lost_request,
        api="produce",
        direction=Direction.UP,
        part=passes,
        is_reset=passes < 1,
    )
    case = Case(server=server, records=RECORDS, batch_records=10)
    told = Told.about(RECORDS)
    with FaultProxy(servers, [cut]) as proxy:
        with Producer({**case.properties(proxy.bootstrap_servers), "linger.ms": 50}) as producer:
            for number in range(RECORDS):  # six batches, all ready before the first one leaves
                producer.produce(topic, value_of(number), partition=0, on_delivery=told.note)
            assert producer.flush(60) == 0
        (happened,) = proxy.happened
        assert happened.hit_work
        if server == KAFKA and lost_request == 1:
            assert happened.in_flight == 1, "another batch was under way with the first one"
    found = audit(case, read_log(servers, topic, 1), told)
    assert found.is_exact and not told.errors, found
