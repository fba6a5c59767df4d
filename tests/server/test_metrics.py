"""What /metrics tells, line by line, and what a scraper may and may not do to the server."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.log.partition import PartitionLog
from oncelog.metrics.http import CONTENT_TYPE, MAX_HEAD_BYTES, MAX_OPEN, MAX_SCRAPES, PIECE_BYTES, MetricsServer
from oncelog.metrics.text import labels
from oncelog.records.header import check_produced
from oncelog.server.exposition import FAMILIES, Seen, exposition
from oncelog.server.turns import Turns
from tests.raw import batch
from tests.server.admin_support import CLOCK, Admin
from tests.server.metrics_page import labels_of, page

SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:\{(?P<labels>[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*)\})?'
    r" (?P<value>-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
)
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(text: str) -> Samples:
    """Every line by the grammar of the text format; families in one piece, each announced once."""
    samples: Samples = {}
    family = ""
    announced: set[str] = set()
    lines = text.split("\n")
    assert lines.pop() == ""
    for line in lines:
        if line.startswith("# "):
            what, name, said = line[2:].split(" ", 2)
            assert what in ("HELP", "TYPE") and said
            assert (what == "TYPE" and name == family) or (what == "HELP" and name not in announced)
            family = name
            announced.add(name)
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match["name"] == family
        pairs = tuple(
            (name, re.sub(r"\\.", lambda each: UNESCAPED[each[0]], value))
            for name, value in LABEL.findall(match["labels"] or "")
        )
        assert (family, pairs) not in samples
        samples[family, pairs] = float(match["value"])
    return samples


def key(name: str, **pairs: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(pairs.items())


class Groups:
    """What the exposition asks of the coordinator."""

    def __init__(self) -> None:
        self.groups: dict[str, Any] = {}
        self.offsets: dict[str, dict[str, dict[int, int]]] = {}
        self.looks = 0

    def committed_topics(self, group: str) -> dict[str, list[int]]:
        self.looks += 1
        return {topic: list(places) for topic, places in self.offsets.get(group, {}).items()}

    def committed(self, group: str, topic: str, index: int) -> Any:
        self.looks += 1
        return SimpleNamespace(offset=self.offsets[group][topic][index])


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    broker: Any = Admin(tmp_path).broker
    broker.groups = Groups()
    broker.metrics.connections_open = 3
    return broker


def told(broker: Any) -> Samples:
    return parse("".join(exposition(broker)))


# The text


def fill(log: PartitionLog, records: int) -> None:
    made = batch([b"x"] * records)
    log.append(bytearray(made), check_produced(made), CLOCK.now())


def test_an_empty_server_tells_well_formed_text(broker: Any) -> None:
    found = told(broker)
    assert found[key("kafka_brokers")] == 1
    assert found[key("oncelog_connections")] == 3
    assert found[key("process_resident_memory_bytes")] > 1_000_000
    assert found[key("process_cpu_seconds_total")] > 0
    assert found[key("process_open_fds")] > 0


def test_partitions_are_told_under_the_exporters_names(broker: Any) -> None:
    topic = broker.topics.create("orders", 2, {}, CLOCK.now())
    log = topic.partitions[1].log
    fill(log, 12)
    log.delete_before(5)
    found = told(broker)
    place = {"topic": "orders", "partition": "1"}
    assert found[key("kafka_topic_partitions", topic="orders")] == 2
    assert found[key("kafka_topic_partition_current_offset", **place)] == 12
    assert found[key("kafka_topic_partition_oldest_offset", **place)] == 5
    assert found[key("kafka_topic_partition_leader", **place)] == 1
    assert found[key("kafka_topic_partition_replicas", **place)] == 1
    assert found[key("kafka_topic_partition_in_sync_replica", **place)] == 1
    log.go_offline("the disk is gone")
    found = told(broker)
    assert found[key("kafka_topic_partition_in_sync_replica", **place)] == 0
    assert found[key("kafka_topic_partition_under_replicated_partition", **place)] == 1
    assert found[key("oncelog_partitions_offline")] == 1


def test_groups_are_told_with_their_lag(broker: Any) -> None:
    topic = broker.topics.create("orders", 2, {}, CLOCK.now())
    for partition in topic.partitions:
        fill(partition.log, 100)
    broker.groups.groups = {"g": SimpleNamespace(members=["a", "b"]), "idle": SimpleNamespace(members=[])}
    broker.groups.offsets = {"g": {"orders": {0: 90, 1: 70}, "deleted": {0: 5}}, "idle": {"orders": {0: 200}}}
    found = told(broker)
    assert found[key("kafka_consumergroup_members", consumergroup="g")] == 2
    assert found[key("kafka_consumergroup_lag", consumergroup="g", topic="orders", partition="1")] == 30
    assert found[key("kafka_consumergroup_current_offset", consumergroup="g", topic="orders", partition="0")] == 90
    assert found[key("kafka_consumergroup_lag_sum", consumergroup="g", topic="orders")] == 40
    assert found[key("kafka_consumergroup_current_offset_sum", consumergroup="g", topic="orders")] == 160
    assert found[key("kafka_consumergroup_lag", consumergroup="idle", topic="orders", partition="0")] == 0
    assert not any(("topic", "deleted") in pairs for _, pairs in found)


def test_no_line_waits_for_the_commits_of_all_groups(broker: Any) -> None:
    """Others are served between two lines, and where groups have nothing to tell."""
    broker.topics.create("orders", 100, {}, CLOCK.now())
    broker.groups.groups = {f"g{number}": SimpleNamespace(members=[]) for number in range(100)}
    broker.groups.offsets = {f"g{number}": {"orders": {0: 1}} for number in range(50)}
    broker.groups.offsets["g0"] = {"orders": dict.fromkeys(range(100), 1)}
    looks = [broker.groups.looks for _ in exposition(broker)]
    assert max(after - before for before, after in pairwise(looks)) <= 3


def test_topics_with_nothing_to_tell_are_gone_through_one_at_a_time(broker: Any) -> None:
    for number in range(20):
        broker.topics.create(f"quiet-{number}", 1, {}, CLOCK.now())
    for name in ("oncelog_producer_fenced_total", "oncelog_topic_partition_damaged_places"):
        (family,) = [each for each in FAMILIES if each.name == name]
        assert list(family.samples(Seen(broker))) == [None] * 20
    (family,) = [each for each in FAMILIES if each.name == "oncelog_partitions_offline"]
    assert list(family.samples(Seen(broker))) == [*[None] * 20, ("", 0)]


def test_what_producers_were_told_is_summed_by_topic_and_silence_is_left_out(broker: Any) -> None:
    loud = broker.topics.create("loud", 2, {}, CLOCK.now())
    broker.topics.create("quiet", 1, {}, CLOCK.now())
    for partition in loud.partitions:
        producers = partition.log.producers
        producers.duplicates, producers.fenced, producers.trimmed = 2, 1, 3
        producers.out_of_order, producers.unknown, producers.full = 4, 5, 6
    found = told(broker)
    assert found[key("oncelog_producer_duplicates_refused_total", topic="loud")] == 4
    assert found[key("oncelog_producer_fenced_total", topic="loud")] == 2
    assert found[key("oncelog_producer_batches_trimmed_total", topic="loud")] == 6
    assert found[key("oncelog_producer_out_of_order_total", topic="loud")] == 8
    assert found[key("oncelog_producer_unknown_total", topic="loud")] == 10
    assert found[key("oncelog_producer_refused_for_room_total", topic="loud")] == 12
    silent = key("oncelog_producer_fenced_total", topic="quiet")
    assert silent not in found


def test_counters_of_the_hot_path_are_told(broker: Any) -> None:
    broker.metrics.requests[0] += 7
    broker.metrics.requests[99] += 1
    broker.metrics.bytes_received += 1000
    broker.metrics.storage_errors += 2
    found = told(broker)
    assert found[key("oncelog_requests_total", api="produce")] == 7
    assert found[key("oncelog_requests_total", api="99")] == 1
    assert found[key("oncelog_received_bytes_total")] == 1000
    assert found[key("oncelog_storage_errors_total")] == 2


@pytest.mark.parametrize("name", ['quote"', "back\\slash", "new\nline", '\\"\n', "}{,=", "ä→", "\\n", ""])
def test_no_name_can_break_out_of_its_label(broker: Any, name: str) -> None:
    broker.groups.groups = {name: SimpleNamespace(members=[])}
    assert told(broker)[key("kafka_consumergroup_members", consumergroup=name)] == 0


def test_counters_end_in_total_and_gauges_do_not() -> None:
    for family in FAMILIES:
        assert family.name.endswith("_total") is (family.kind == "counter"), family.name


def test_the_page_of_metrics_is_current_and_names_the_labels(broker: Any) -> None:
    written = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert written.read_text() == page(), "run: python -m tests.server.metrics_page > docs/metrics.md"
    topic = broker.topics.create("orders", 1, {}, CLOCK.now())
    topic.partitions[0].log.producers.duplicates = 1
    broker.groups.groups = {"g": SimpleNamespace(members=[])}
    broker.groups.offsets = {"g": {"orders": {0: 0}}}
    broker.metrics.requests[0] += 1
    for name, pairs in told(broker):
        assert ", ".join(label for label, _ in pairs) == labels_of(name), name


def test_labels_are_written_in_the_order_given() -> None:
    assert labels(topic="a", partition=3) == '{topic="a",partition="3"}'


# The port


class Scraped:
    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        self.status, *lines = head.decode().split("\r\n")
        self.headers = dict(line.split(": ", 1) for line in lines)

    def unchunked(self) -> bytes:
        assert self.headers["Transfer-Encoding"] == "chunked"
        rest, whole = self.body, b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            if int(size, 16) == 0:
                assert rest == b"\r\n"
                return whole
            whole += rest[: int(size, 16)]
            assert rest[int(size, 16) :][:2] == b"\r\n"
            rest = rest[int(size, 16) + 2 :]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = MetricsServer(lambda: iter([f"line {number}\n" for number in range(10_000)]))
    yield await server.start("127.0.0.1", 0)
    await server.stop()


async def exchange(port: int, *pieces: bytes, ends: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if ends:
            writer.write_eof()
        return await reader.read()
    finally:
        writer.close()


WHOLE = "".join(f"line {number}\n" for number in range(10_000)).encode()


async def test_get_tells_everything_in_chunks(port: int) -> None:
    answer = Scraped(await exchange(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"))
    assert answer.status == "HTTP/1.1 200 OK"
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert answer.unchunked() == WHOLE


async def test_a_request_may_come_byte_by_byte(port: int) -> None:
    request = b"GET /metrics?all HTTP/1.1\r\n\r\n"
    answer = Scraped(await exchange(port, *(request[at : at + 1] for at in range(len(request)))))
    assert answer.unchunked() == WHOLE


async def test_where_nothing_is_told_the_text_goes_on() -> None:
    """An empty chunk would be the last one."""
    server = MetricsServer(lambda: iter(["x" * PIECE_BYTES, "", "y" * PIECE_BYTES, ""]))
    answer = Scraped(await exchange(await server.start("127.0.0.1", 0), b"GET /metrics HTTP/1.1\r\n\r\n"))
    assert answer.unchunked() == b"x" * PIECE_BYTES + b"y" * PIECE_BYTES
    await server.stop()


async def test_an_older_client_gets_no_chunks(port: int) -> None:
    answer = Scraped(await exchange(port, b"GET /metrics HTTP/1.0\r\n\r\n"))
    assert "Transfer-Encoding" not in answer.headers
    assert answer.body == WHOLE


async def test_head_tells_no_body(port: int) -> None:
    answer = Scraped(await exchange(port, b"HEAD /metrics HTTP/1.1\r\n\r\n"))
    assert (answer.status, answer.body) == ("HTTP/1.1 200 OK", b"")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metricsx HTTP/1.1\r\n\r\n", "404"),
        (b"GET http://x/metrics HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"get /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", "400"),
        (b"GET /metrics HTTP/2.0\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400"),
        (b"\xff\xff\xff\xff \r\n\r\n", "400"),
    ],
)
async def test_anything_else_is_refused(port: int, request_bytes: bytes, status: str) -> None:
    answer = Scraped(await exchange(port, request_bytes))
    assert answer.status.split(" ")[1] == status
    assert len(answer.body) == int(answer.headers["Content-Length"])
    assert ("Allow" in answer.headers) is (status == "405")


async def test_a_request_that_ends_half_way_is_refused(port: int) -> None:
    assert Scraped(await exchange(port, b"GET /metr", ends=True)).status.split(" ")[1] == "400"


async def test_a_head_without_end_is_refused_before_it_fills_memory() -> None:
    server = MetricsServer(lambda: iter(()))
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD_BYTES + 1))
    assert (await reader.readuntil(b"\r\n")).split(b" ")[1] == b"431"
    writer.close()
    await server.stop()


async def test_a_client_that_says_nothing_is_let_go() -> None:
    server = MetricsServer(lambda: iter(()), timeout_s=0.05)
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with pytest.raises(ConnectionError):
        if not await reader.read():
            raise ConnectionError
    writer.close()
    await server.stop()


async def test_a_scraper_that_does_not_read_holds_back_only_its_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    made, before = 0, -1
    stopped = asyncio.Event()

    def endless() -> Iterator[str]:
        nonlocal made
        try:
            for number in count():
                made = number
                yield "x" * 1023 + "\n"
        finally:
            stopped.set()

    server = MetricsServer(endless, timeout_s=3_600)
    port = await server.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    quick = Scraped(await exchange(port, b"GET /nowhere HTTP/1.1\r\n\r\n"))
    assert quick.status.split(" ")[1] == "404"
    while made != before:
        before = made
        assert made * 1024 < 64 * 2**20, "text was made faster than the scraper took it"
        for _ in range(100):
            await asyncio.sleep(0)
    now_s += 3_600
    await stopped.wait()
    writer.close()
    await server.stop()


async def test_more_scrapers_than_allowed_are_told_to_come_back() -> None:
    server = MetricsServer(lambda: ("x" * PIECE_BYTES for _ in count()))
    port = await server.start("127.0.0.1", 0)
    scraping = [await asyncio.open_connection("127.0.0.1", port, limit=1024) for _ in range(MAX_SCRAPES)]
    for reader, writer in scraping:
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
    assert Scraped(await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")).status.split(" ")[1] == "503"
    scraping[0][1].transport.abort()
    await server.stop()


async def test_connections_that_ask_nothing_keep_no_scraper_out() -> None:
    server = MetricsServer(lambda: iter(("text\n",)))
    port = await server.start("127.0.0.1", 0)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_OPEN)]
    for place in range(2):
        assert Scraped(await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")).unchunked() == b"text\n"
        if place == 0:
            with suppress(ConnectionError):
                assert await silent[0][0].read() == b"", "the one that came first makes room"
    for reader, writer in silent[2:]:
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert Scraped(await reader.read()).unchunked() == b"text\n", "the others stay"
        writer.close()
    await server.stop()


async def test_others_have_turns_between_short_lines_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.server.turns.TURN_MS", 0)
    happened: list[str] = []

    def text() -> Iterator[str]:
        for _ in range(5):
            happened.append("look")
            asyncio.get_running_loop().call_soon(happened.append, "turn")
            yield "text\n"

    server = MetricsServer(text, turns=Turns(lambda: 0))
    port = await server.start("127.0.0.1", 0)
    answer = await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert Scraped(answer).unchunked() == b"text\n" * 5
    await server.stop()
    assert max(map(len, "".join(each[0] for each in happened).split("t"))) <= 2


async def test_stopping_cuts_scrapers_off() -> None:
    server = MetricsServer(lambda: ("x" * PIECE_BYTES for _ in count()))
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    await reader.readexactly(1000)
    await server.stop()
    with pytest.raises(ConnectionError):
        while await reader.read(2**20):
            pass
        raise ConnectionError
    writer.close()


async def test_a_failure_while_telling_ends_the_scrape_not_the_server(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterator[str]:
        yield "first\n"
        raise RuntimeError("what a metric may do")

    server = MetricsServer(failing)
    port = await server.start("127.0.0.1", 0)
    for _ in range(2):
        data = await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert not data.endswith(b"0\r\n\r\n"), "a scraper must not take half of it for the whole"
    assert "the metrics could not be told" in caplog.text
    await server.stop()


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        (b"127.0.0.1:9308", True),
        (b"[::1]:9308", True),
        (b"localhost", True),
        (b"oncelog:9308", True),
        (b"log-0.log.svc.cluster.local", True),
        (b"LOG.example.org:1", True),
        (b"evil.example", False),
        (b"log.example.org.evil.example", False),
        (b"127.0.0.1.evil.example", False),
    ],
)
async def test_a_name_that_may_be_another_pages_gets_no_metrics(host: bytes, is_answered: bool) -> None:
    server = MetricsServer(lambda: iter(("text\n",)), own_names={"log.example.org"})
    try:
        port = await server.start("127.0.0.1", 0)
        answer = Scraped(await exchange(port, b"GET /metrics HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"))
        assert answer.status.split(" ")[1] == ("200" if is_answered else "403")
    finally:
        await server.stop()
