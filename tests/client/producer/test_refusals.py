"""What cannot be meant is refused before anything is sent; what cannot be delivered is reported record by record."""

import os
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.producer import Producer
from oncelog.embedded import Server
from oncelog.slots import Place
from tests.client.inside import engine_of
from tests.client.producer.conftest import MakeProducer
from tests.client.producer.stored import Heard, stored
from tests.raw import RawConnection
from tests.raw.topics import new_topic

WRONG: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception]]] = [
    ((None, b"x"), {}, TypeError),
    ((5, b"x"), {}, TypeError),
    ((b"topic", b"x"), {}, TypeError),
    (("", b"x"), {}, KafkaException),
    (("t" * 250, b"x"), {}, KafkaException),
    (("\ud800", b"x"), {}, KafkaException),
    (("t", 5), {}, TypeError),
    (("t", b"x"), {"key": 5}, TypeError),
    (("t", b"x"), {"partition": "a"}, TypeError),
    (("t", b"x"), {"partition": -7}, KafkaException),
    (("t", b"x"), {"timestamp": -1}, ValueError),
    (("t", b"x"), {"timestamp": "now"}, TypeError),
    (("t", b"x"), {"timestamp": True}, TypeError),
    (("t", b"x"), {"partition": True}, TypeError),
    (("t", b"x"), {"headers": 5}, TypeError),
    (("t", b"x"), {"headers": ["a"]}, TypeError),
    (("t", b"x"), {"headers": [("a", 5)]}, TypeError),
    (("t", b"x"), {"headers": [(None, b"")]}, TypeError),
    (("t", b"x"), {"headers": {"a": 1.5}}, TypeError),
    (("t", b"x"), {"on_delivery": 5}, TypeError),
    (("t", b"x"), {"bogus": 1}, TypeError),
]


@pytest.mark.parametrize(("arguments", "more", "expected"), WRONG)
def test_wrong_arguments_are_refused_and_take_no_room(
    make_producer: MakeProducer, arguments: tuple[Any, ...], more: dict[str, Any], expected: type[Exception]
) -> None:
    producer = make_producer()
    with pytest.raises(expected):
        producer.produce(*arguments, **more)
    assert len(producer) == 0


def test_a_wrong_callback_is_refused_on_the_short_way_too(topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer(sticky_partitioning_linger_ms=900_000)
    producer.produce(topic, b"x")
    producer.flush(30)
    producer.produce(topic, b"x")
    with pytest.raises(TypeError, match="on_delivery"):
        producer.produce(topic, b"x", on_delivery=5)  # type: ignore[arg-type]


def test_a_record_above_message_max_bytes_is_refused(topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer(message_max_bytes=2000)
    with pytest.raises(KafkaException) as refused:
        producer.produce(topic, b"x" * 3000)
    assert refused.value.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    producer.produce(topic, b"x" * 1900)
    assert producer.flush(30) == 0


def test_a_partition_that_is_not_there_is_refused_or_reported(topic: str, make_producer: MakeProducer) -> None:
    producer, heard = make_producer(), Heard()
    producer.produce(topic, b"x", partition=1, on_delivery=heard)  # the topic is not known yet
    producer.flush(30)
    assert heard.codes == [KafkaError._UNKNOWN_PARTITION]
    with pytest.raises(KafkaException) as refused:
        producer.produce(topic, b"x", partition=1)
    assert refused.value.error.code() == KafkaError._UNKNOWN_PARTITION
    assert len(producer) == 0


def test_a_topic_that_is_not_made_is_reported_as_unknown(server: Server, make_producer: MakeProducer) -> None:
    producer = make_producer(allow_auto_create_topics=False, topic_metadata_propagation_max_ms=0)
    heard = Heard()
    producer.produce("nowhere", b"x", on_delivery=heard)
    assert producer.flush(30) == 0
    assert heard.codes == [KafkaError._UNKNOWN_TOPIC]
    assert not heard.errors[0].maybe_stored()


def test_a_name_that_no_topic_can_have_is_reported(make_producer: MakeProducer) -> None:
    producer, heard = make_producer(), Heard()
    producer.produce("no topic!", b"x", on_delivery=heard)
    assert producer.flush(30) == 0
    assert heard.codes == [KafkaError.TOPIC_EXCEPTION]


def test_records_are_given_up_after_the_delivery_timeout(unused_tcp_port: int) -> None:
    heard = Heard()
    told: list[KafkaError] = []
    properties = {
        "bootstrap.servers": f"127.0.0.1:{unused_tcp_port}",
        "delivery.timeout.ms": 300,
        "linger.ms": 1,
        "error_cb": told.append,
    }
    with Producer(properties) as producer:
        producer.produce("t", b"x", on_delivery=heard)
        assert producer.flush(30) == 0
    assert heard.codes == [KafkaError._MSG_TIMED_OUT]
    assert not heard.errors[0].maybe_stored()
    assert told and told[0].retriable()


def test_a_batch_that_was_cut_in_two_is_done_when_both_are(raw: RawConnection, make_producer: MakeProducer) -> None:
    """Else nothing of its partition would ever be idle again, and `pin` would wait for ever."""
    topic = new_topic(raw, max_message_bytes="1000")
    producer = make_producer(linger_ms=100_000)
    for number in range(50):
        producer.produce(topic, b"%0100d" % number)
    assert producer.flush(30) == 0
    assert engine_of(producer).sender.counters.splits > 0
    assert engine_of(producer).is_idle(Place(topic, 0))
    producer.pin(topic)
    assert producer.saved().topics[topic].partitions[0].last.next_sequence == 50


def test_nothing_works_after_close(topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer()
    producer.produce(topic, b"x")
    producer.close()
    producer.close()
    for call in (lambda: producer.produce(topic, b"x"), lambda: producer.poll(0), lambda: producer.flush(0)):
        with pytest.raises(KafkaException, match="closed"):
            call()


def test_a_forked_process_is_told_to_make_a_producer_of_its_own(
    server: Server, topic: str, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    producer.produce(topic, b"parent")
    producer.flush(30)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            producer.produce(topic, b"child")
        except KafkaException as refused:
            status = 0 if "forked" in str(refused) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.produce(topic, b"parent")
    producer.flush(30)
    assert [each.value for each in stored(server.bootstrap_servers, topic)] == [b"parent", b"parent"]


def test_unknown_properties_are_refused() -> None:
    with pytest.raises(KafkaException):
        Producer({"bootstrap.servers": "127.0.0.1:1", "linger.msec": 5})


@pytest.mark.parametrize("topics", [(5,), (["d"],), ("d", None), ()])
def test_what_is_pinned_are_topics_by_name(make_producer: MakeProducer, topics: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"pin\('orders', 'payments'\)"):
        make_producer().pin(*topics)
