"""Dead letters: what cannot be worked on goes to a topic of its own, as it came, and the others go on.

    python examples/flows/dead_letters.py [--servers HOST:PORT] [--spark]

Headers of a dead letter say which record it was, which stage gave it up, and why.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Dead, Flow, Sent, Topic, json_of, raw, text


@dataclass(frozen=True)
class Order:
    customer: str
    cents: int


orders = Topic("shop.orders", text, json_of(Order), partitions=2)
net = Topic("shop.net", text, json_of(Order), partitions=2)
dead = Dead("shop.orders.dead", partitions=2)


def without_tax(order: Order) -> Order:
    if order.cents < 0:
        raise ValueError("an order of less than nothing")
    return Order(order.customer, order.cents * 100 // 119)


flow = Flow("shop", version="1")
flow.read(orders, otherwise=dead).map(without_tax).write(net)

outputs = (net, dead.topic)


def records(day: int = 0) -> list[Sent]:
    as_it_came = Topic(orders.name, text, raw, partitions=2)
    return [
        orders.sent(f"o{day}-1", Order("anna", 1190)),
        as_it_came.sent(f"o{day}-2", b"not JSON at all"),
        orders.sent(f"o{day}-3", Order("bert", -5)),
        orders.sent(f"o{day}-4", Order("carla", 2380)),
    ]


if __name__ == "__main__":
    show(flow, records(), *outputs)
