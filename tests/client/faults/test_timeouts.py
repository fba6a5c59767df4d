"""Records that run out of time are reported as what they are: not stored, or maybe stored. The others stand once."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oncelog.chaos.faults import Fault, Kind, seeded_schedule
from oncelog.chaos.proxy import FaultProxy
from oncelog.client.producer.producer import Producer
from tests.client.faults.audit import read_log
from tests.client.faults.case import KAFKA, ONCELOG, Case
from tests.client.faults.sending import number_in, value_of
from tests.raw import RawConnection

RECORDS = 20_000
PARTITIONS = 2
TIMEOUT_MS = 600
OUTAGE_MS = 800  # longer than records may take
NO_REPORT, STORED, MAYBE_STORED, NOT_STORED = range(4)


def outages(seed: int) -> list[Fault]:
    """Answers that are swallowed, then nobody who could be asked until the records' time is over."""
    weights = {Kind.CUT: 3, Kind.SWALLOW: 4, Kind.STALL: 2}
    faults = seeded_schedule(seed, every=25, until=100_000, weights=weights, stall_ms=300)
    for at in (40, 160):
        faults.append(Fault(kind=Kind.SWALLOW, counter="produce answers", at=at, api="produce", frames=2))
        faults.append(Fault(kind=Kind.REFUSE, counter="produce answers", at=at + 2, ms=OUTAGE_MS))
    return faults


@dataclass(slots=True)
class Fates:
    of: NDArray[np.int8] = field(default_factory=lambda: np.zeros(RECORDS, np.int8))
    reports: NDArray[np.int32] = field(default_factory=lambda: np.zeros(RECORDS, np.int32))

    def note(self, error: Any, message: Any) -> None:
        number = number_in(message.value())
        self.reports[number] += 1
        self.of[number] = STORED if error is None else MAYBE_STORED if error.maybe_stored() else NOT_STORED


@pytest.mark.parametrize("server", [ONCELOG, pytest.param(KAFKA, marks=pytest.mark.thorough)])
def test_what_timed_out_is_reported_truthfully(server: str, request: pytest.FixtureRequest) -> None:
    servers, topic = request.getfixturevalue(f"{server}_servers"), "timeouts"
    case = replace(Case(), batch_records=50, socket_timeout_ms=300)
    fates = Fates()
    with RawConnection(servers) as raw:
        assert raw.create_topic(topic, PARTITIONS) == 0
    with FaultProxy(servers, outages(2)) as proxy:
        properties = {
            **case.properties(proxy.bootstrap_servers),
            "message.timeout.ms": TIMEOUT_MS,
            "queue.buffering.max.messages": 2_000,
        }
        with Producer(properties) as producer:
            for number in range(RECORDS):
                producer.produce(topic, value_of(number), partition=number % PARTITIONS, on_delivery=fates.note)
                if not number & 0x7F:
                    producer.poll(0)
            assert producer.flush(120) == 0
    logs = read_log(servers, topic, PARTITIONS)
    copies = np.bincount(np.concatenate([log.numbers for log in logs]), minlength=RECORDS)
    assert (fates.reports == 1).all()
    assert copies.max() == 1, "a record stands twice"
    assert all((np.diff(log.numbers) > 0).all() for log in logs), "records stand out of order"
    assert (copies[fates.of == STORED] == 1).all(), "a record that was reported as stored is lost"
    assert (copies[fates.of == NOT_STORED] == 0).all(), "a record that was reported as not stored is there"
    assert {STORED, NOT_STORED} <= set(fates.of.tolist()), "nothing timed out: the run has shown nothing"
