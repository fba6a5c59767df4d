"""Nothing is lost in silence, and nothing is said a hundred times."""

from typing import Any

import pytest

from oncelog.client.errors import KafkaError
from oncelog.client.producer.delivery import Records, Report
from oncelog.client.producer.notices import MOST_KNOWN, Repeats, Unheard
from oncelog.client.producer.producer import Producer
from tests.logged import messages

DOWN = KafkaError(KafkaError._TRANSPORT, "there: connect failed")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def failed(count: int, callbacks: Any = None, code: int = KafkaError._MSG_TIMED_OUT) -> Report:
    records = Records("orders", 3, count, 100)
    records.callbacks = callbacks
    return Report(records, error=KafkaError(code))


def test_the_same_error_is_told_at_once_and_then_every_five_seconds() -> None:
    clock, told = Clock(), list[KafkaError]()
    repeats = Repeats(told.append, clock)
    for _ in range(100):
        repeats.tell(DOWN)
        clock.now_s += 0.1
    assert len(told) == 2


def test_another_outage_is_told_again() -> None:
    clock, told = Clock(), list[KafkaError]()
    repeats = Repeats(told.append, clock)
    repeats.tell(DOWN)
    clock.now_s += 1.5
    repeats.tell(DOWN)
    repeats.answered()
    repeats.tell(DOWN)
    assert len(told) == 2


def test_errors_that_never_look_the_same_take_no_memory_for_ever() -> None:
    told: list[KafkaError] = []
    repeats = Repeats(told.append, Clock())
    for at in range(1000):
        repeats.tell(KafkaError(KafkaError._TRANSPORT, f"failure {at}"))
    assert len(repeats.told_s) <= MOST_KNOWN
    assert len(told) == 1000


def test_records_without_a_callback_are_counted_in_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    unheard = Unheard(clock)
    for _ in range(10):
        unheard.failed(failed(5))
    assert unheard.due_s() == clock.now_s + 1
    clock.now_s += 1
    unheard.say_due()
    assert unheard.due_s() is None
    first, second = messages(caplog, "oncelog.client")
    assert first.startswith("5 records") and "orders [3]: Local: Message timed out" in first
    assert second.startswith("45 records")


def test_whoever_has_a_callback_or_purges_reads_nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    unheard = Unheard(Clock())
    unheard.failed(failed(2, [print, print]))
    unheard.failed(failed(2, code=KafkaError._PURGE_QUEUE))
    assert not messages(caplog, "oncelog.client")
    unheard.failed(failed(2, [print, None]))
    assert messages(caplog, "oncelog.client")[0].startswith("1 record was")


def test_a_producer_without_callbacks_says_what_it_lost(unused_tcp_port: int, caplog: pytest.LogCaptureFixture) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    with Producer({"bootstrap.servers": address, "delivery.timeout.ms": 300, "linger.ms": 1}) as producer:
        for _ in range(7):
            producer.produce("orders", b"x")
        assert producer.flush(30) == 0
    assert sum(int(each.split()[0]) for each in messages(caplog, "oncelog.client") if "not delivered" in each) == 7


def test_what_closing_gives_up_is_said_too(unused_tcp_port: int, caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{unused_tcp_port}"})
    producer.produce("orders", b"x")
    assert producer.close(0) == 1
    assert messages(caplog, "oncelog.client")[0][:26] == "1 record was not delivered"
