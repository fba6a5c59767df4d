"""Changelog: a balance for each of many accounts. Each commit has the balances that changed, and the offsets.

    python examples/flows/changelog.py [--servers HOST:PORT] [--spark]

The cell's journal is the changelog, a compacted topic. Who goes on reads it, and has state and position at once. What
`sum` tells goes out once for each account that changed since the commit before.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Flow, Sent, Topic, json_of, text


@dataclass(frozen=True)
class Booking:
    cents: int


bookings = Topic("accounts.bookings", text, json_of(Booking), partitions=2)
balances = Topic("accounts.balances", text, json_of(int), partitions=2)

flow = Flow("accounts", version="1")
flow.read(bookings).sum("balance", lambda booking: booking.cents).write(balances)

outputs = (balances,)


def records(day: int = 0) -> list[Sent]:
    return [bookings.sent(f"account {number}", Booking(100 * number - day)) for number in range(50)]


if __name__ == "__main__":
    show(flow, records(), *outputs)
