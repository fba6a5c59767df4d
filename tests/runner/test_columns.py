"""States of many keys, which a run of records changes as columns."""

from collections import Counter, defaultdict
from typing import Any

import pytest

from oncelog.client import Producer
from oncelog.flow import Flow
from oncelog.flow.codecs import Codec
from oncelog.flow.holding import Holding
from oncelog.flow.journal import Journal
from oncelog.flow.numbered import NumberedChanges, NumberedStates
from oncelog.runner import engine
from oncelog.runner.batch_encoding import wait_for_loops
from tests.runner.flows import WAITS_S, Billing, Owed, book
from tests.waiting import until

KEYS = 5_000


def test_a_life_begins_with_what_the_one_before_knew_of_them(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends because somebody else has written into the journals; what that was does not count."""
    wait_for_loops()
    came: Counter[str] = Counter()
    columns_of, copy_of = NumberedStates.column_changes, vars(Holding)["copy"].fget

    def counted(states: NumberedStates, codec: Codec[Any]) -> NumberedChanges | None:
        found = columns_of(states, codec)
        came["columns"] += found is not None
        return found

    def copied(holding: Holding) -> Journal | None:
        found: Journal | None = copy_of(holding)
        came["copies"] += found is not None and len(found.state) > 0
        return found

    monkeypatch.setattr(NumberedStates, "column_changes", counted)
    monkeypatch.setattr(Holding, "copy", property(copied))
    monkeypatch.setattr(engine, "JOURNALS_EVERY_S", 0.1)
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(KEYS))
    flow = Flow(billing.name, version="1")
    flow.read(billing.orders, name="orders").step("owed", Owed, book).write(billing.sums)
    run = flow.start(billing.properties)
    billing.wait_for(KEYS)
    until(lambda: sum(cell.records for cell in run.cells) == KEYS, "all to be committed", give_up_seconds=WAITS_S)
    assert came["columns"]
    with Producer(billing.properties) as producer:
        for cell in range(billing.orders.partitions):
            producer.produce(f"oncelog.flow.{billing.name}.orders", key="s-foreign", value="1", partition=cell)
        producer.flush()
    until(lambda: came["copies"] >= billing.orders.partitions, "a copy of each cell", give_up_seconds=WAITS_S)
    billing.send(range(KEYS))
    billing.wait_for(2 * KEYS)
    run.stop()
    written: defaultdict[str, list[int]] = defaultdict(list)
    for key, owed in billing.written():
        written[key].append(owed.amount)
    amounts = {f"o{number}": billing.order(number).amount for number in range(KEYS)}
    assert written == {key: [amount, 2 * amount] for key, amount in amounts.items()}
