"""Join with a table: each order gets the rank that its customer has by then.

    python examples/flows/table_join.py [--servers HOST:PORT] [--spark]

A table is a compacted topic: the last record of a key is its row, and a null value deletes it. Which row an order meets
stands in the log before anything is written, so it is the same after a crash.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Flow, Sent, Topic, json_of, text

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Order:
    id: str
    cents: int


@dataclass(frozen=True)
class Customer:
    rank: str
    since_day: int


@dataclass(frozen=True)
class Ranked:
    id: str
    cents: int
    customer: Customer | None


orders = Topic("ranks.orders", text, json_of(Order), partitions=2)
customers = Topic("ranks.customers", text, json_of(Customer), partitions=2)
ranked = Topic("ranks.ranked", text, json_of(Ranked), partitions=2)


def with_rank(order: Order, customer: Customer | None) -> Ranked:
    return Ranked(order.id, order.cents, customer)


flow = Flow("ranks", version="1")
flow.read(orders).join(flow.table(customers), with_rank, left=True).write(ranked)

outputs = (ranked,)


def records(day: int = 0) -> list[Sent]:
    """Anna rises every day. Bert is a customer every other day, and Carla never is."""
    noon_ms = 1_700_000_000_000 + day * DAY_MS
    bert = (
        customers.sent("bert", Customer("silver", day), noon_ms)
        if day % 2 == 0
        else customers.tombstone("bert", noon_ms)
    )
    return [
        customers.sent("anna", Customer("gold", day), noon_ms),
        bert,
        orders.sent("anna", Order(f"a{day}", 500), noon_ms + 1),
        orders.sent("bert", Order(f"b{day}", 700), noon_ms + 2),
        orders.sent("carla", Order(f"c{day}", 200), noon_ms + 3),
    ]


if __name__ == "__main__":
    show(flow, records(), *outputs)
