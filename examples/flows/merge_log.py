"""Merge log: orders and payments in one order, which stays the same after a crash.

    python examples/flows/merge_log.py [--servers HOST:PORT] [--spark]

Which record comes next is written into the journal, as a plan, before anything of it is sent. So the numbers that the
entries of a customer get are not given twice, and not given differently.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Context, Flow, Sent, Topic, json_of, text


@dataclass(frozen=True)
class Order:
    id: str
    cents: int


@dataclass(frozen=True)
class Payment:
    id: str
    cents: int


@dataclass(frozen=True)
class Entry:
    number: int
    what: str
    id: str


orders = Topic("ledger.orders", text, json_of(Order), partitions=2)  # both by customer
payments = Topic("ledger.payments", text, json_of(Payment), partitions=2)
ledger = Topic("ledger.entries", text, json_of(Entry), partitions=2)


def book(last: int, event: Order | Payment, at: Context[str]) -> tuple[int, list[Entry]]:
    return last + 1, [Entry(last + 1, type(event).__name__, event.id)]


flow = Flow("ledger", version="1")
flow.read(orders).merge("events", flow.read(payments)).step("last", int, book).write(ledger)

outputs = (ledger,)


def records(day: int = 0) -> list[Sent]:
    begin_ms = 1_700_000_000_000 + day * 86_400_000
    return [
        orders.sent("anna", Order(f"o{day}-1", 500), begin_ms),
        payments.sent("anna", Payment(f"p{day}-1", 500), begin_ms + 2),
        orders.sent("bert", Order(f"o{day}-2", 700), begin_ms + 1),
        orders.sent("anna", Order(f"o{day}-3", 300), begin_ms + 3),
    ]


if __name__ == "__main__":
    show(flow, records(), *outputs)
