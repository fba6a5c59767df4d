"""Timers: a balance for each customer, and a reminder where nobody pays for half an hour.

    python examples/flows/timers.py [--servers HOST:PORT] [--spark]

Two topics are merged by the time of their events, and regrouped by customer. A timer belongs to the state of its key,
stands in the log with it, and goes with it. Each reminder is written once.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Context, Flow, Sent, Topic, json_of, one_of, text

MINUTE_MS = 60_000


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Payment:
    customer: str
    amount: int


@dataclass(frozen=True)
class Owed:
    amount: int = 0


@dataclass(frozen=True)
class Reminder:
    amount: int


orders = Topic("reminders.orders", text, json_of(Order))
payments = Topic("reminders.payments", text, json_of(Payment))
ledger = Topic("reminders.ledger", text, one_of(Order, Payment), partitions=2)
reminders = Topic("reminders.reminders", text, json_of(Reminder))


def book(owed: Owed, event: Order | Payment, at: Context[str]) -> tuple[Owed | None, list[Reminder]]:
    if isinstance(event, Payment):
        left = owed.amount - event.amount
        return (Owed(left) if left > 0 else None), []  # with the state its timer goes
    if not owed.amount:
        at.timer(at.time_ms + 30 * MINUTE_MS)
    return Owed(owed.amount + event.amount), []


def remind(owed: Owed, customer: str, at: Context[str]) -> tuple[Owed | None, list[Reminder]]:
    return owed, [Reminder(owed.amount)]


flow = Flow("reminders", version="1")
events = flow.read(orders).merge("events", flow.read(payments))
events.through(ledger, key=lambda event: event.customer).step("owed", Owed, book, on_timer=remind).write(reminders)

outputs = (reminders,)


def records(day: int = 0) -> list[Sent]:
    begin_ms = 1_700_000_000_000 + day * 86_400_000
    anna, bert, carla = (f"{name} {day}" if day else name for name in ("anna", "bert", "carla"))
    return [
        orders.sent(f"o{day}-1", Order(anna, 5), begin_ms),
        orders.sent(f"o{day}-2", Order(bert, 7), begin_ms + 1 * MINUTE_MS),
        payments.sent(f"p{day}-1", Payment(anna, 5), begin_ms + 10 * MINUTE_MS),
        orders.sent(f"o{day}-3", Order(carla, 2), begin_ms + 12 * MINUTE_MS),
        payments.sent(f"p{day}-2", Payment(carla, 1), begin_ms + 20 * MINUTE_MS),
    ]


if __name__ == "__main__":
    show(flow, records(), *outputs)
