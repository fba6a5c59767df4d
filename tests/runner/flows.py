"""A flow for these tests, its input, and what must come of it."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any

from oncelog.client import (
    OFFSET_BEGINNING,
    AdminClient,
    Consumer,
    KafkaError,
    Message,
    NewTopic,
    Producer,
    TopicPartition,
)
from oncelog.flow import Context, Dead, Flow, Topic, json_of, text
from oncelog.flow.formats import STATE
from tests.waiting import until

WAITS_S = 60.0


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Owed:
    amount: int = 0


def book(owed: Owed, order: Order, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
    total = Owed(owed.amount + order.amount)
    return total, [total]


def customer_of(order: Order) -> str:
    return order.customer


KEEP = {"retention.ms": "-1"}  # by their times some of the records are old


class Billing:
    """Orders by number, regrouped by customer and summed up; every sum is written."""

    def __init__(self, name: str, servers: str, *, partitions: int = 2, customers: int = 7) -> None:
        self.name = name
        self.servers = servers
        self.properties = {"bootstrap.servers": servers}
        self.customers = customers
        self.orders = Topic(f"{name}-orders", text, json_of(Order), partitions=partitions)
        self.between = Topic(f"{name}-by-customer", text, json_of(Order), partitions=3)
        self.later = Topic(f"{name}-later", text, json_of(Order), partitions=1)
        self.sums = Topic(f"{name}-sums", text, json_of(Owed), partitions=2)

    def flow(self, version: str = "1", *, otherwise: Dead | None = None, also: Topic[str, Owed] | None = None) -> Flow:
        flow = Flow(self.name, version=version, otherwise=otherwise)
        grouped = flow.read(self.orders, name="orders").through(self.between, key=lambda order: order.customer)
        owed = grouped.step("owed", Owed, book)
        for each in (self.sums, also):
            if each is not None:
                owed.write(each)
        return flow

    def copy(self) -> Flow:
        """One stage, without state."""
        flow = Flow(self.name, version="1")
        flow.read(self.orders).map(lambda order: Owed(order.amount)).write(self.sums)
        return flow

    def in_a_row(self, bad: Collection[int]) -> Flow:
        """Three stages without state, of which the first cannot work on orders of these amounts."""

        def checked(order: Order) -> Order:
            if order.amount in bad:
                raise ValueError(f"an order of {order.amount}")
            return order

        flow = Flow(self.name, version="1")
        grouped = flow.read(self.orders, name="orders").map(checked).through(self.between, key=customer_of)
        grouped.through(self.later, key=customer_of).map(lambda order: Owed(order.amount)).write(self.sums)
        return flow

    def order(self, number: int) -> Order:
        return Order(f"c{number % self.customers}", number % 10 + 1)

    def make_topics(self, *topics: Topic[Any, Any]) -> None:
        for each in topics or (self.orders, self.sums):
            make_topic(self.servers, each.name, each.partitions)

    def send(self, numbers: Iterable[int]) -> None:
        with Producer(self.properties | {"partitioner": "murmur2"}) as producer:
            for number in numbers:
                key, value = f"o{number}", self.orders.value.encode(self.order(number))
                producer.produce(self.orders.name, key=key, value=value)
            producer.flush()

    def send_raw(self, key: str, value: bytes, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        with Producer(self.properties | {"partitioner": "murmur2"}) as producer:
            producer.produce(self.orders.name, key=key, value=value, headers=list(headers))
            producer.flush()

    def send_at(self, times: Iterable[int], *topics: str) -> None:
        """Orders of 1, with times of their own, to these topics in turn: to one partition of each, and to no other."""
        into = cycle(topics or (self.orders.name,))
        with Producer(self.properties | {"partitioner": "murmur2"}) as producer:
            for time_ms in times:
                value = self.orders.value.encode(Order("anna", 1))
                producer.produce(next(into), key="o1", value=value, timestamp=time_ms)
            producer.flush()

    def written(self) -> list[tuple[str, Owed]]:
        """Partition by partition, all that stands in the output."""
        codec = self.sums.value
        return [(key.decode(), codec.decode(value)) for key, value in everything(self.servers, self.sums.name)]

    def wait_for(self, count: int) -> None:
        """Until so many sums are written."""
        until(lambda: self.count() >= count, f"{count} sums in {self.sums.name}", give_up_seconds=WAITS_S)

    def count(self) -> int:
        """How many sums are written."""
        with Consumer(self.properties) as consumer:
            places = [TopicPartition(self.sums.name, index) for index in range(self.sums.partitions)]
            found = [consumer.get_watermark_offsets(place, timeout=30) for place in places]
        return sum(high for bounds in found if bounds is not None for high in bounds[1:])

    def totals(self, count: int) -> dict[str, int]:
        """What the state must be: the fold of the input."""
        found: dict[str, int] = defaultdict(int)
        for number in range(count):
            found[self.order(number).customer] += self.order(number).amount
        return found

    def state(self) -> dict[str, int]:
        """As any reader finds it in the journals, by the last value of each key."""
        prefix = STATE + b"owed\0"
        return {
            key.removeprefix(prefix).decode(): json.loads(value)["amount"]
            for key, value in everything(self.servers, f"oncelog.flow.{self.name}.{self.between.name}")
            if key.startswith(prefix)
        }

    def check_amounts(self, count: int) -> None:
        """Each order in what stages without state have written, once."""
        amounts = sorted(self.order(number).amount for number in range(count))
        assert sorted(owed.amount for _, owed in self.written()) == amounts

    def check(self, count: int) -> None:
        """Each order in the sums of its customer, once: they go up by the amounts, in whatever order these came."""
        expected: dict[str, list[int]] = defaultdict(list)
        for number in range(count):
            order = self.order(number)
            expected[order.customer].append(order.amount)
        sums: dict[str, list[int]] = defaultdict(list)
        for customer, owed in self.written():
            sums[customer].append(owed.amount)
        steps = {
            customer: [after - before for before, after in pairwise([0, *each])] for customer, each in sums.items()
        }
        found = {customer: sorted(each) for customer, each in steps.items()}
        wanted = {customer: sorted(each) for customer, each in expected.items()}
        counts = {each: (len(found.get(each, [])), len(wanted[each])) for each in wanted}
        assert found == wanted, f"sums found and wanted: {counts}; the state is {self.state()}"


def make_topic(servers: str, name: str, partitions: int) -> None:
    with AdminClient({"bootstrap.servers": servers}) as admin:
        for future in admin.create_topics([NewTopic(name, partitions, 1, config=KEEP)]).values():
            future.result(30)


def everything(servers: str, topic: str) -> list[tuple[bytes, bytes]]:
    return [(message.key() or b"", message.value() or b"") for message in messages(servers, topic)]


def messages(servers: str, topic: str) -> list[Message]:
    found = []
    with Consumer({"bootstrap.servers": servers, "enable.partition.eof": "true"}) as consumer:
        for index in sorted(consumer.list_topics(topic).topics[topic].partitions):
            consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING)])
            while (message := consumer.poll(30)) is not None:
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                found.append(message)
    return found
