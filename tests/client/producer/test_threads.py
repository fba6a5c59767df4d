"""What threads may do to each other at the worst moment, each brought about by hand."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.partitioners import partitioner
from oncelog.client.producer.accumulator import Budget, Held, Topic, Unbatched
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.closing import Closing
from oncelog.client.producer.delivery import Outbox, Records, Report
from oncelog.client.producer.encoding import Encoder
from oncelog.client.producer.notices import Repeats
from oncelog.client.producer.producer import Producer
from oncelog.client.producer.topics import Topics
from oncelog.client.properties import producer_settings
from oncelog.clock import monotonic_s
from oncelog.embedded import Server
from tests.client.inside import engine_of
from tests.client.producer.conftest import MakeProducer
from tests.client.producer.stored import Heard

PATIENCE_S = 30.0


def test_news_that_another_thread_has_dealt_with_ends_the_wait_of_all() -> None:
    outbox = Outbox(Budget(10, 1000))
    seen = outbox.changes
    outbox.put(None, lambda *_: None, None)
    assert outbox.serve() == 1, "another thread was quicker"
    assert outbox.wait(seen, PATIENCE_S), "what came after `seen` is no news any more for who looked before"


def test_room_that_serving_makes_is_told_to_who_waits_for_it() -> None:
    budget = Budget(1, 1000)
    outbox = Outbox(budget)
    budget.take(12)
    outbox.put_report(Report(Records("t", 0, 1, 12)))
    seen = outbox.changes
    outbox.serve()
    assert budget.messages == 0
    assert outbox.wait(seen, PATIENCE_S)


def test_a_wait_ends_by_itself_when_nothing_comes() -> None:
    outbox = Outbox(Budget(10, 1000))
    assert not outbox.wait(outbox.changes, 0.001)


def test_flush_ends_at_once_beside_a_thread_that_polls(topic: str, make_producer: MakeProducer) -> None:
    producer, heard = make_producer(linger_ms=0), Heard()
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            producer.poll(0.05)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        for _ in range(100):
            producer.produce(topic, b"x", on_delivery=heard)
            assert producer.flush(PATIENCE_S) == 0
    finally:
        is_over.set()
        poller.join()
    assert heard.codes == [None] * 100


class _Owner:
    """What closing asks of the engine."""

    def __init__(self) -> None:
        self.woken = 0
        self.reports: list[Report] = []
        self.report: Callable[[Report], None] = self.reports.append

    def wake(self) -> None:
        self.woken += 1


class _Saving:
    failure: KafkaError | None = None

    def offer(self, *_: Any) -> list[Any]:
        raise AssertionError("nothing is compared any more once the producer has failed")

    def failed(self, *_: Any) -> None:
        """It need not remember."""


def _closing(owner: _Owner) -> Closing:
    closing = Closing(producer_settings({"bootstrap.servers": "localhost:1", "batch.num.messages": 1}), owner)
    closing.saving = _Saving()
    return closing


def _row(value: bytes) -> tuple[Any, ...]:
    return None, value, None, 1.0, None


def test_batches_that_nobody_could_make_while_another_thread_was_at_it_are_made_in_the_next_turn() -> None:
    owner = _Owner()
    closing = _closing(owner)
    partition = Unbatched("t", 0, 1)
    partition.chunks.append([*_row(b"left behind")])
    with partition.lock:  # by a thread that saw so many batches under way that it made no more
        closing.done(partition)
    assert not closing.made
    closing.close_due(2.0)
    assert [batch.record_count for batch in closing.made] == [1]


def test_a_failed_producer_reports_what_comes_during_a_replay() -> None:
    owner = _Owner()
    closing = _closing(owner)
    partition = Unbatched("t", 0, 1)
    partition.replay = object()  # type: ignore[assignment]
    closing.saving.failure = KafkaError(KafkaError._STATE)  # type: ignore[misc]
    partition.rows += _row(b"late")
    closing.close(partition, everything=True)
    assert [report.error.code() for report in owner.reports if report.error] == [KafkaError._STATE]


def test_records_of_which_no_batch_can_be_made_are_pending_until_they_are_reported_by_the_end_at_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a value could be saved behind them, and an engine that ends before its next turn would keep them."""

    def without_room(*_: Any, **__: Any) -> NoReturn:
        raise MemoryError

    owner = _Owner()
    closing = _closing(owner)
    closing.close_due(1.0)  # so that this is the engine's thread
    partition = Unbatched("t", 0, 1)
    partition.rows += _row(b"much")
    monkeypatch.setattr(Encoder, "encode", without_room)
    with pytest.raises(MemoryError):
        closing.close(partition, everything=True)
    assert (owner.reports, closing.pending(partition)) == ([], 1)
    closing.end(KafkaError(KafkaError._PURGE_QUEUE))
    assert [report.error.code() for report in owner.reports if report.error] == [KafkaError._FAIL]
    assert closing.pending(partition) == 0


def test_who_waits_for_room_is_told_that_the_producer_was_closed(topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer(queue_buffering_max_messages=1, linger_ms=100_000, oncelog_queue_full="block")
    producer.produce(topic, b"first")
    raised: list[BaseException] = []

    def produce() -> None:
        try:
            while True:
                producer.produce(topic, b"next")
        except KafkaException as failure:
            raised.append(failure)

    thread = threading.Thread(target=produce)
    thread.start()
    producer.purge()
    producer.close(0)
    thread.join(PATIENCE_S)
    assert [failure.args[0].code() for failure in raised] == [KafkaError._STATE]
    assert len(producer) == 0, "what was taken was reported"


def closed_by_another(producer: Producer) -> None:
    closing = threading.Thread(target=producer.close)
    closing.start()
    closing.join(PATIENCE_S)


def test_a_record_that_comes_behind_the_last_purge_is_reported(topic: str, make_producer: MakeProducer) -> None:
    producer, heard = make_producer(), Heard()
    producer.produce(topic, b"0", b"key", on_delivery=heard)
    producer.flush(PATIENCE_S)
    known = engine_of(producer).topics[topic]
    place = known.hash
    assert place is not None

    def late(key: bytes) -> int:
        closed_by_another(producer)
        return place(key)

    known.hash = late
    producer.produce(topic, b"1", b"key", on_delivery=heard)
    assert heard.codes == [None, KafkaError._PURGE_QUEUE]
    assert len(producer) == 0, "or who flushes would wait for ever"


@pytest.mark.parametrize("is_known", [True, False])
def test_a_record_that_was_looked_at_before_the_producer_closed_is_not_kept(
    topic: str, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    producer, heard = make_producer(), Heard()
    if is_known:
        producer.produce(topic, b"0")
        producer.flush(PATIENCE_S)
    engine = engine_of(producer)
    put = engine.put

    def late(name: str, record: Held) -> None:
        closed_by_another(producer)
        put(name, record)

    monkeypatch.setattr(engine, "put", late)
    if is_known:
        producer.produce(topic, b"1", partition=0, on_delivery=heard)
        assert heard.codes == [KafkaError._PURGE_QUEUE]
    else:
        with pytest.raises(KafkaException, match="Purged"):
            producer.produce(topic, b"1", partition=0, on_delivery=heard)
    assert len(producer) == 0


def test_two_threads_may_close_it_at_once(make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = make_producer()
    engine = engine_of(producer)
    both, flush, close = threading.Barrier(2), engine.flush, engine.close
    closed: list[None] = []
    failures: list[BaseException] = []

    def flush_together(by: int) -> None:
        flush(by)
        both.wait(PATIENCE_S)

    async def count() -> None:
        closed.append(None)
        await close()

    def end() -> None:
        try:
            producer.close()
        except KafkaException as failure:
            failures.append(failure)

    monkeypatch.setattr(engine, "flush", flush_together)
    monkeypatch.setattr(engine, "close", count)
    threads = [threading.Thread(target=end) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures
    assert len(closed) == 1


@pytest.mark.parametrize("name", ["consistent_random", "murmur2_random"])
def test_partitions_that_come_in_the_middle_of_a_piece_lose_no_row(name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    from oncelog.client.producer.bulk import BulkWriter

    sent: list[int] = []

    class Growing:
        """A topic that has one partition more each time that anybody looks."""

        def __init__(self) -> None:
            self.name = "t"
            self.looks = 1
            self.sticky_choice = None

        @property
        def partitions(self) -> tuple[Unbatched, ...]:
            self.looks += 1
            return tuple(Unbatched("t", index) for index in range(self.looks))

    class Engine:
        settings = producer_settings({"bootstrap.servers": "localhost:1"})
        budget = Budget(1000, 1 << 20)
        bulk_buffers = None
        closing = _closing(_Owner())
        partitioner = partitioner(name)

    engine = Engine()
    engine.closing.put = lambda place, batches: sent.extend(each.record_count for each in batches)  # type: ignore[assignment, method-assign]
    table = pa.table({"value": [b"v"] * 200, "key": [b"%d" % number for number in range(200)]})
    sending = BulkWriter(engine, "t", table)  # type: ignore[arg-type]
    sending.know(Growing())  # type: ignore[arg-type]
    for piece in sending.pieces():
        sending.send(piece)
    sending.finish()
    assert sum(sent) == 200 == sending.handle.record_count


async def test_a_topic_that_was_given_up_and_is_used_again_at_once_is_asked_for_again() -> None:
    settings = producer_settings({"bootstrap.servers": "localhost:1"})
    topics = Topics(Brokers(settings), settings, _nothing, _nothing, _nothing, Repeats(_nothing, monotonic_s))
    asked: list[Topic] = []

    async def ask(topic: Topic) -> None:
        asked.append(topic)

    topics.make_known = ask  # type: ignore[method-assign]
    first, second = topics.open("t"), Topic("t", 0.0, 0)
    topics.want(first)
    given_up = topics.tasks["t"]
    await given_up
    topics.tasks["t"] = given_up  # the loop comes to its callbacks only after the next record has come
    topics.want(second)
    await asyncio.sleep(0)
    assert asked == [first, second]
    await topics.close()


def _nothing(*_: Any) -> None:
    """What is not asked for here."""


def test_two_who_open_a_topic_at_once_get_the_same() -> None:
    settings = producer_settings({"bootstrap.servers": "localhost:1"})
    topics = Topics(Brokers(settings), settings, _nothing, _nothing, _nothing, Repeats(_nothing, monotonic_s))

    class Known(dict[str, Topic]):
        """Between the look and the making another thread was quicker."""

        def get(self, name: str, default: Any = None) -> Any:
            found = super().get(name, default)
            self.setdefault(name, other)
            return found

    other = Topic("t", 0.0, 0)
    topics.known = Known()
    assert topics.open("t") is other


async def test_reports_of_another_thread_reach_futures_on_their_own(server: Server, topic: str) -> None:
    async with AsyncProducer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)  # refuses what comes from another thread
        future = loop.create_future()
        records = Records(topic, 0, 1, 12)
        records.callbacks, records.times = [future], [1.0]
        threads: list[int] = []
        future.add_done_callback(lambda _: threads.append(threading.get_ident()))
        engine_of(producer).budget.take(12)
        await asyncio.to_thread(engine_of(producer).deliver, Report(records, error=KafkaError(KafkaError._STATE)))
        with pytest.raises(KafkaException):
            await asyncio.wait_for(future, PATIENCE_S)
        assert threads == [threading.get_ident()]


async def test_an_error_callback_that_raises_does_not_stop_the_engine(server: Server, topic: str) -> None:
    told: list[KafkaError] = []

    def raises(error: KafkaError) -> None:
        told.append(error)
        raise ValueError("the application's own")

    loop = asyncio.get_running_loop()
    heard: list[Any] = []
    loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))
    async with AsyncProducer({"bootstrap.servers": server.bootstrap_servers}, error_cb=raises) as producer:
        engine_of(producer).tell(KafkaError(KafkaError._TRANSPORT))
        await producer.produce_and_wait(topic, b"x")
    assert [str(each) for each in heard] == ["the application's own"]
