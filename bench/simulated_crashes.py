"""How many crash points of a two-stage flow `flow.simulate` tries in a second: `python -m bench.simulated_crashes`.

By the time that this process has the processor, since it does nothing but compute. A *step* is one at which a holder
can be stopped; those between which nothing was sent or appended leave the same behind, and are tried once.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.flow import Context, Flow, Topic, json_of, text


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Owed:
    amount: int = 0


ORDERS = Topic("orders", text, json_of(Order), partitions=2)
LEDGER = Topic("ledger", text, json_of(Order), partitions=3)
TOTALS = Topic("totals", text, json_of(Owed), partitions=2)
CUSTOMERS = "abcdefgh"


def book(owed: Owed, order: Order, at: Context[str]) -> tuple[Owed | None, Iterable[Owed]]:
    total = Owed(owed.amount + order.amount)
    return total, [total]


def measured(records: int) -> str:
    flow = Flow("f", version="1")
    flow.read(ORDERS).through(LEDGER, key=lambda order: order.customer).step("owed", Owed, book).write(TOTALS)
    sent = [ORDERS.sent(f"o{at}", Order(CUSTOMERS[at % 8], at), at) for at in range(records)]
    began_s = time.process_time()
    done = flow.simulate(sent, crashes=True)
    took_s = time.process_time() - began_s
    return (
        f"{records:4} records: {done.steps:5} steps, {done.crashes:4} runs, {took_s:6.3f} s: "
        f"{done.steps / took_s:6.0f} steps/s, {done.crashes / took_s:5.0f} runs/s"
    )


def main() -> None:
    for records in (5, 50, 200):
        print(measured(records))


if __name__ == "__main__":
    main()
