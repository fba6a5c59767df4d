"""Deduplication by an id: a writer that repeats what it is not sure of, and readers who get each payment once.

python examples/flows/dedup_by_id.py [--servers HOST:PORT] [--spark]
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Flow, Sent, Topic, json_of, text


@dataclass(frozen=True)
class Payment:
    id: str
    cents: int


received = Topic("payments.received", text, json_of(Payment), partitions=2)  # copies of one have one key
once = Topic("payments.once", text, json_of(Payment), partitions=2)

flow = Flow("payments", version="1")
flow.read(received).dedup("ids", lambda payment: payment.id, most=100_000).write(once)

outputs = (once,)


def records(day: int = 0) -> list[Sent]:
    first, second = Payment(f"{day}-1", 500), Payment(f"{day}-2", 700)
    return [received.sent("anna", each) for each in (first, second, first, second, second)]


if __name__ == "__main__":
    show(flow, records(), *outputs)
