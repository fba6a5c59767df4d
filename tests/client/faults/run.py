"""One run: send through the proxy, read back past it, judge."""

import itertools
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

from oncelog.chaos.faults import Kind
from oncelog.chaos.proxy import FaultProxy
from tests.client.faults.audit import Audit, audit, read_log
from tests.client.faults.case import Case
from tests.client.faults.sending import Told, send
from tests.raw import RawConnection

_numbers = itertools.count(1)

EXACT: Final = "exact"
DUPLICATES: Final = "duplicates, as it must be"
INCONCLUSIVE: Final = "inconclusive"
WRONG: Final = "WRONG"


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    audit: Audit
    told: Told
    requests: int  # to produce, as the proxy counted them
    connections: int
    hits: "Counter[str]"  # faults that met work in flight, by kind
    unreadable: list[str]
    seconds: float

    @property
    def is_conclusive(self) -> bool:
        """Enough faults met work, and some of them swallowed answers after the batch was stored: without those nothing
        tempts a producer to write anything twice."""
        return sum(self.hits.values()) >= self.case.least_hits and self.hits[Kind.SWALLOW] >= self.case.least_hits // 8

    @property
    def verdict(self) -> str:
        failed = self.told.errors or self.told.left or self.unreadable
        if self.case.is_idempotent:
            if not self.audit.is_exact or failed:
                return WRONG
            return EXACT if self.is_conclusive else INCONCLUSIVE
        if self.audit.lost or failed:
            return WRONG
        return DUPLICATES if self.audit.duplicates and self.is_conclusive else INCONCLUSIVE

    @property
    def is_as_it_should_be(self) -> bool:
        return self.verdict == (EXACT if self.case.is_idempotent else DUPLICATES)

    def __str__(self) -> str:
        return (
            f"{self.case}: {self.verdict}; {self.audit}; {self.requests} requests, {self.connections} connections, "
            f"faults that hit work: {dict(self.hits)}; left {self.told.left}, errors {self.told.errors[:3]}, "
            f"{self.unreadable[:3]}, {self.seconds:.1f} s"
        )


def run(case: Case, servers: str) -> Outcome:
    topic = f"faults-{next(_numbers)}"
    with RawConnection(servers, timeout_s=60) as raw:
        assert raw.create_topic(topic, case.partitions) == 0
    started = time.monotonic()
    with FaultProxy(servers, case.faults()) as proxy:
        told = send(case, proxy.bootstrap_servers, topic)
        seconds = time.monotonic() - started
    found = audit(case, read_log(servers, topic, case.partitions), told)
    counts = proxy.plan.counts
    hits = Counter(str(happened.fault.kind) for happened in proxy.happened if happened.hit_work)
    return Outcome(
        case, found, told, counts["produce requests"], counts["connections"], hits, proxy.unreadable, seconds
    )
