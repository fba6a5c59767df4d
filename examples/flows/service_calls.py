"""Calls to a service: an answer is asked for, kept in the commit, and written from there, once.

    python examples/flows/service_calls.py [--servers HOST:PORT] [--spark]

The service gives another answer each time. Both outputs have the same one all the same, and none has two. After a crash
the service may be asked again; `at.id` lets it recognise that.
"""

from dataclasses import dataclass
from random import randrange

from demo import show

from oncelog.flow import Context, Flow, Sent, Topic, json_of, text


@dataclass(frozen=True)
class Offer:
    order: str
    cents: int
    asked_for: str


orders = Topic("offers.orders", text, text, partitions=2)
offers = Topic("offers.offers", text, json_of(Offer), partitions=2)
audit = Topic("offers.audit", text, json_of(Offer), partitions=2)


def price(order: str, at: Context[str]) -> Offer:
    """In the place of a request to a service."""
    return Offer(order, randrange(1_000_000), at.id)


flow = Flow("offers", version="1")
priced = flow.read(orders).call(price, name="price")
priced.write(offers)
priced.write(audit)

outputs = (offers, audit)


def records(day: int = 0) -> list[Sent]:
    return [orders.sent(f"customer {number}", f"order {day}-{number}") for number in range(3)]


if __name__ == "__main__":
    show(flow, records(), *outputs)
