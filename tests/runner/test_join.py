"""A stream that is joined with a table, which changes while the flow runs and while it does not."""

from dataclasses import dataclass

import pytest

from oncelog.client import AdminClient, NewTopic, Producer
from oncelog.flow import Flow, Topic, json_of, text
from tests.runner.flows import everything, make_topic
from tests.waiting import until


@dataclass(frozen=True)
class Ranked:
    number: int
    rank: int | None


class Ranking:
    """Orders by number, each with the rank that stands by then."""

    def __init__(self, name: str, servers: str) -> None:
        self.name, self.servers = name, servers
        self.properties = {"bootstrap.servers": servers}
        self.orders = Topic(f"{name}-orders", text, json_of(int), partitions=2)
        self.ranks = Topic(f"{name}-ranks", text, json_of(int), partitions=2)
        self.ranked = Topic(f"{name}-ranked", text, json_of(Ranked), partitions=2)
        make_topic(servers, self.orders.name, 2)
        make_topic(servers, self.ranked.name, 2)
        with AdminClient(self.properties) as admin:
            compacted = NewTopic(self.ranks.name, 2, 1, config={"cleanup.policy": "compact"})
            admin.create_topics([compacted])[self.ranks.name].result(30)

    def flow(self) -> Flow:
        flow = Flow(self.name, version="1")
        flow.read(self.orders).join(flow.table(self.ranks), Ranked, left=True).write(self.ranked)
        return flow

    def send(self, topic: Topic[str, int], value: int | None) -> None:
        with Producer(self.properties | {"partitioner": "murmur2"}) as producer:
            producer.produce(topic.name, key="anna", value=None if value is None else topic.value.encode(value))
            producer.flush()

    def written(self) -> list[Ranked]:
        return [self.ranked.value.decode(value) for _, value in everything(self.servers, self.ranked.name)]

    def order_until(self, rank: int | None, first: int) -> int:
        """Orders one after the other, until one meets this row; how many there were then."""
        number = first

        def is_met() -> bool:
            nonlocal number
            if len(found := self.written()) == number:
                if found and found[-1].rank == rank:
                    return True
                self.send(self.orders, number)
                number += 1
            return False

        until(is_met, f"an order of rank {rank}", give_up_seconds=60)
        return number


@pytest.mark.thorough
@pytest.mark.timeout(200)
def test_rows_are_met_that_change_while_it_runs_and_while_it_does_not(servers: str, topic: str) -> None:
    ranking = Ranking(topic, servers)
    run = ranking.flow().start(ranking.properties, share=True)
    number = ranking.order_until(None, 0)
    for rank in (1, 2):
        ranking.send(ranking.ranks, rank)
        number = ranking.order_until(rank, number)
    run.stop()
    assert run.exception() is None
    ranking.send(ranking.ranks, 3)
    ranking.send(ranking.orders, number)
    ranking.flow().run(ranking.properties, until="end")
    assert ranking.written()[-1] == Ranked(number, 3)
    ranking.send(ranking.ranks, None)
    run = ranking.flow().start(ranking.properties)
    number = ranking.order_until(None, number + 1)
    run.stop()
    assert run.exception() is None
    found = ranking.written()
    assert [each.number for each in found] == list(range(number))
    ranks = [each.rank or 0 for each in found if each.rank is not None]
    assert ranks == sorted(ranks)
    assert ranks[-1] == 3
