"""Connections are cut and answers swallowed while a flow works."""

import pytest

from oncelog.chaos.faults import Fault, Kind, Sides, seeded_schedule
from oncelog.chaos.proxy import FaultProxy
from tests.depth import deeper, scaled
from tests.runner.flows import Billing

RECORDS = 2_000
SEEDS = 1
SOON = {"socket.timeout.ms": "2000"}  # of a connection whose other side was cut: a minute, without it


@deeper
@pytest.mark.parametrize("seed", range(scaled(SEEDS)))
def test_nothing_is_missing_and_nothing_is_there_twice(servers: str, topic: str, seed: int) -> None:
    plain = Billing(topic, servers)
    plain.make_topics()
    plain.send(range(RECORDS))
    with FaultProxy(servers, seeded_schedule(seed, every=8, until=10_000)) as proxy:
        behind = Billing(topic, proxy.bootstrap_servers)
        behind.flow().run(behind.properties | SOON, until="end")
        assert any(each.hit_work for each in proxy.happened)
    plain.check(RECORDS)
    assert plain.state() == plain.totals(RECORDS)


def test_an_answer_that_never_comes_does_not_end_a_run(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.runner.agreeing.PATIENCE_MS", 1_000)
    plain = Billing(topic, servers)
    plain.make_topics()
    lost = Fault(kind=Kind.CUT, counter="produce answers", at=1, api="produce", sides=Sides.SERVER)
    with FaultProxy(servers, [lost]) as proxy:
        behind = Billing(topic, proxy.bootstrap_servers)
        behind.flow().run(behind.properties | {"socket.timeout.ms": "1000"}, until="end")
        assert [each.hit_work for each in proxy.happened] == [True]
