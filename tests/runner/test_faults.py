"""Connections are cut and answers swallowed while a flow works."""

import pytest

from oncelog.chaos.faults import seeded_schedule
from oncelog.chaos.proxy import FaultProxy
from tests.depth import deeper, scaled
from tests.runner.flows import Billing

RECORDS = 2_000
SEEDS = 1


@deeper
@pytest.mark.parametrize("seed", range(scaled(SEEDS)))
def test_nothing_is_missing_and_nothing_is_there_twice(servers: str, topic: str, seed: int) -> None:
    plain = Billing(topic, servers)
    plain.make_topics()
    plain.send(range(RECORDS))
    with FaultProxy(servers, seeded_schedule(seed, every=8, until=10_000)) as proxy:
        behind = Billing(topic, proxy.bootstrap_servers)
        behind.flow().run(behind.properties, until="end")
        assert any(each.hit_work for each in proxy.happened)
    plain.check(RECORDS)
    assert plain.state() == plain.totals(RECORDS)
