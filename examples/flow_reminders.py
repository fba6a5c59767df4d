"""Orders and payments in one order, a balance for each customer, and a reminder where nobody pays: a flow.

    python examples/flow_reminders.py
    python examples/flow_reminders.py --servers HOST:PORT

Two topics are merged by the time of their events, what comes is regrouped by customer, and each customer's balance is
state that stands in the log. A timer reminds those who owe something for half an hour. Whatever is killed, each
reminder is written once.

Without --servers a server in this process takes the place of a cluster. `--spark` has Spark's tasks do the work.
"""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import oncelog
from oncelog.client import Admin, Consumer, KafkaError, KafkaException, NewTopic, Producer, TopicPartition
from oncelog.flow import Context, Flow, Topic, json_of, one_of, text

NOON_MS = 1_700_000_000_000
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


orders = Topic("orders", text, json_of(Order))
payments = Topic("payments", text, json_of(Payment))
ledger = Topic("ledger", text, one_of(Order, Payment), partitions=2)
reminders = Topic("reminders", text, json_of(Reminder))


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

SENT: list[tuple[Topic[Any, Any], str, object, int]] = [
    (orders, "o1", Order("anna", 5), 0),
    (orders, "o2", Order("bert", 7), 1),
    (payments, "p1", Payment("anna", 5), 10),
    (orders, "o3", Order("carla", 2), 12),
    (payments, "p2", Payment("carla", 1), 20),
]


def main() -> int:
    options = read_options()
    with ExitStack() as stack:
        servers = options.servers or stack.enter_context(oncelog.Server()).bootstrap_servers
        create(servers)
        write(servers)
        if options.spark:
            from oncelog.spark import session

            flow.run({"bootstrap.servers": servers}, until="end", spark=session("reminders", progress=False))
        else:
            flow.run({"bootstrap.servers": servers}, until="end")
        show(servers)
    return 0


def create(servers: str) -> None:
    keep = {"retention.ms": "-1"}  # these orders are of 2023
    topics = [NewTopic(topic.name, topic.partitions, 1, config=keep) for topic in (orders, payments, reminders)]
    with Admin({"bootstrap.servers": servers}) as admin:
        for future in admin.create_topics(topics).values():
            failure = future.exception()
            is_there = isinstance(failure, KafkaException) and failure.error.code() == KafkaError.TOPIC_ALREADY_EXISTS
            if failure is not None and not is_there:
                raise failure


def write(servers: str) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for topic, key, event, minute in SENT:
            time_ms = NOON_MS + minute * MINUTE_MS
            producer.produce(topic.name, key=key, value=topic.value.encode(event), timestamp=time_ms)
        producer.flush()


def show(servers: str) -> None:
    with Consumer({"bootstrap.servers": servers, "enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(reminders.name, 0, 0)])
        while (message := consumer.poll(10)) is not None and message.error() is None:
            owed = reminders.value.decode(message.value() or b"")
            sys.stdout.write(f"{(message.key() or b'').decode()} owes {owed.amount}\n")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--servers", help="a Kafka or an oncelog server; one in this process if not given")
    parser.add_argument("--spark", action="store_true", help="in Spark's tasks")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
