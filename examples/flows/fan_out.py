"""Fan-out by type: one topic of many kinds of events becomes a topic for each kind.

python examples/flows/fan_out.py [--servers HOST:PORT] [--spark]
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Flow, Sent, Topic, json_of, one_of, text


@dataclass(frozen=True)
class Click:
    page: str


@dataclass(frozen=True)
class Purchase:
    cents: int


events = Topic("site.events", text, one_of(Click, Purchase), partitions=2)
clicks = Topic("site.clicks", text, json_of(Click), partitions=2)
purchases = Topic("site.purchases", text, json_of(Purchase), partitions=2)
large = Topic("site.large-purchases", text, json_of(Purchase))

flow = Flow("site", version="1")
read = flow.read(events)
read.only(Click).write(clicks)
bought = read.only(Purchase)
bought.write(purchases)
bought.filter(lambda purchase: purchase.cents >= 100_00).write(large)

outputs = (clicks, purchases, large)


def records(day: int = 0) -> list[Sent]:
    done = [("anna", Click("/")), ("anna", Purchase(20_00)), ("bert", Click(f"/{day}")), ("bert", Purchase(200_00))]
    return [events.sent(visitor, event) for visitor, event in done]


if __name__ == "__main__":
    show(flow, records(), *outputs)
