"""What no public door can take is refused there, in one sentence that says what to give."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oncelog import Server
from oncelog.arguments import as_number, as_whole
from oncelog.client import (
    AdminClient,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    NewPartitions,
    NewTopic,
    Producer,
    SavedProducer,
    TopicPartition,
)
from oncelog.cluster.parent import Parent
from oncelog.cluster.workers import Workers
from oncelog.embedded import open_service
from oncelog.flow import Dead, Flow, Topic, json_of, raw, text
from oncelog.flow.simulation.engine import Stopped
from oncelog.server.settings_reading import read_settings
from oncelog.settings import SettingsError
from oncelog.spark import copy_topic
from oncelog.spark.conf import said_by_caller

DICT = 'the configuration of a client: expected a dict of properties, such as {"bootstrap.servers": "127.0.0.1:9092"}, '
A_TOPIC = 'expected a Topic, such as Topic("orders", text, json_of(Order)), not str'
MAPPING = """settings: expected a mapping by Kafka's names, such as {"num.partitions": "3"}, not list"""

SERVERS: dict[str, tuple[dict[str, Any], str]] = {
    "brokers as a text": ({"brokers": "3"}, "brokers: expected a whole number, such as brokers=3, not str"),
    "brokers as a truth": ({"brokers": True}, "brokers: expected a whole number, such as brokers=3, not bool"),
    "no brokers": ({"brokers": 0}, "0 brokers: expected 1 to 5"),
    "workers as a number": ({"workers": 2.0}, "workers: expected a whole number, such as workers=3, not float"),
    "no workers": ({"workers": 0}, "0 workers: expected 1 to 16"),
    "secure as a text": ({"secure": "false"}, "secure: expected True or False, not str"),
    "a folder as bytes": ({"data_dir": b"data"}, "data_dir: expected the path of a folder, not bytes"),
    "settings as a list": ({"settings": ["num.partitions=3"]}, MAPPING),
    "an empty list of settings": ({"settings": []}, MAPPING),
    "a name that is none": (
        {"settings": {1: "3"}},
        "a name in settings: expected a text, such as num.partitions, not int",
    ),
    "nothing as a value": (
        {"settings": {"num.partitions": None}},
        "num.partitions: expected a text, a number, True, False, a path or a list, not NoneType",
    ),
    "a mapping as a value": (
        {"num_partitions": {}},
        "num.partitions: expected a text, a number, True, False, a path or a list, not dict",
    ),
    "a port": (
        {"port": "x"},
        "unknown setting port (in the settings given to oncelog.Server): listeners says where to listen, as "
        "listeners=PLAINTEXT://127.0.0.1:9092",
    ),
}


@pytest.mark.parametrize("which", SERVERS)
def test_a_server_is_not_begun(which: str) -> None:
    given, words = SERVERS[which]
    with pytest.raises((TypeError, ValueError)) as refused:
        Server(**given)
    assert str(refused.value) == words


@pytest.mark.parametrize("given", ["data", 3])
def test_a_server_takes_its_arguments_by_their_names(given: Any) -> None:
    words = 'oncelog.Server: give each argument by its name, such as data_dir="data", brokers=3 or num_partitions=3'
    with pytest.raises(TypeError, match=f"^{re.escape(words)}$"):
        Server(given)


# Numbers of numpy's

TRUTHS: list[Any] = [True, np.True_]


@pytest.mark.parametrize("given", [3, np.int8(3), np.int64(3), np.uint16(3), np.array(3)])
def test_whole_numbers_of_numpy_are_whole_numbers(given: Any) -> None:
    assert (as_whole(given), type(as_whole(given))) == (3, int)
    assert as_number(given) == 3


@pytest.mark.parametrize("given", [0.5, np.float32(0.5), np.float64(0.5), Fraction(1, 2)])
def test_fractions_of_numpy_are_numbers(given: Any) -> None:
    assert as_number(given) == 0.5
    assert as_whole(given) is None


@pytest.mark.parametrize("given", [*TRUTHS, "3", None, b"3", [3], np.array([3, 4]), np.array("3"), 3j])
def test_what_is_no_number_is_none(given: Any) -> None:
    assert as_number(given) is None
    assert as_whole(given) is None


def test_each_door_takes_them() -> None:
    numpy: Any = np
    two, half = numpy.int32(2), numpy.float32(0.5)
    assert type(Topic("orders", text, json_of(int), partitions=two).partitions) is int
    with Server(num_partitions=two, brokers=numpy.int64(1)) as server:
        properties = {"bootstrap.servers": server.bootstrap_servers, "linger.ms": half}
        with AdminClient(properties) as admin:
            made = [NewTopic("orders", two, numpy.int16(1))]
            admin.create_topics(made, request_timeout=numpy.float32(30))["orders"].result()
            admin.create_partitions([NewPartitions("orders", numpy.int8(3))])["orders"].result()
        with Producer(properties) as producer:
            for number in numpy.arange(3):
                producer.produce("orders", b"v", partition=number, timestamp=numpy.int64(1_000) + number)
            assert producer.flush(numpy.float64(30)) == 0
        with Consumer(properties, **{"group.id": "g"}) as consumer:
            consumer.assign([TopicPartition("orders", two, numpy.int64(0))])
            (message,) = consumer.consume(numpy.int64(1), numpy.float32(30))
            assert (message.partition(), message.timestamp()[1]) == (2, 1_002)
            consumer.commit(offsets=[TopicPartition("orders", 2, numpy.int64(1))], asynchronous=False)
            (found,) = consumer.offsets_for_times([TopicPartition("orders", 2, numpy.int64(500))])
            assert found.offset == 0


def test_a_flow_takes_them() -> None:
    numpy: Any = np
    numbers = Topic("numbers", text, json_of(int), time=lambda value: numpy.int64(value))
    flow = Flow("f", version="1")
    read = flow.read(numbers, wait_ms=numpy.int16(1), start=numpy.int64(0))
    windows = read.window("w", int, lambda total, value: total + value, size_ms=numpy.int32(10))
    windows.map(lambda window: window.state).write(counts)
    assert flow.simulate([numbers.sent("a", 1), numbers.sent("a", 2)], 20)[counts] == [("a", 3)]


def test_true_is_no_number_of_partitions() -> None:
    for given in TRUTHS:
        with pytest.raises(TypeError, match="expected a whole number of at least 1, not bool"):
            Topic("orders", text, text, partitions=given)


@pytest.mark.parametrize("made", [Producer, AsyncProducer, Consumer, AsyncConsumer, AdminClient, SavedProducer.load])
@pytest.mark.parametrize("given", ["127.0.0.1:9092", None, [("bootstrap.servers", "127.0.0.1:9092")], 9092])
def test_a_client_is_not_begun(made: Callable[[Any], object], given: object) -> None:
    with pytest.raises(TypeError) as refused:
        made(given)
    assert str(refused.value) == f"{DICT}not {type(given).__name__}"


NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
ORDERS = TopicPartition("orders", 0, 0)


def listed(producer: Any, *given: Any, **more: Any) -> None:
    with producer(NOBODY) as made:
        made.list_topics(*given, **more)


def asked(method: str, given: object) -> None:
    with AdminClient(NOBODY) as admin:
        getattr(admin, method)(given)


def committed(producer: object) -> None:
    with Consumer(NOBODY, **{"group.id": "g", "enable.auto.commit": False}) as consumer:
        consumer.commit(offsets=[ORDERS], producer=producer)


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "a topic that is a number": (
        lambda: listed(Producer, 5),
        "topic: expected the name of a topic, or None for all, not int",
    ),
    "a timeout that is a text": (
        lambda: listed(Producer, timeout="5"),
        "a timeout is a number of seconds, not '5'",
    ),
    "a producer by name": (
        lambda: committed("orders"),
        "producer: expected the Producer that is to be saved with these offsets, not str",
    ),
    "partitions of a new topic": (
        lambda: asked("create_topics", [NewTopic("orders", "3")]),  # type: ignore[arg-type]
        "NewTopic orders: num_partitions: expected a whole number, such as 3, not str",
    ),
    "the configuration of a new topic": (
        lambda: asked("create_topics", [NewTopic("orders", config=["retention.ms"])]),  # type: ignore[arg-type]
        'NewTopic orders: config: expected a dict, such as {"retention.ms": "3600000"}, not list',
    ),
    "records of a partition by a text": (
        lambda: asked("delete_records", [TopicPartition("orders", "0", 1)]),  # type: ignore[arg-type]
        "a topic is a str and a partition an int, not 'orders' and '0'",
    ),
    "a time that is a text": (
        lambda: asked("list_offsets", {ORDERS: "now"}),
        "the offset or time of orders-0: expected a whole number, not str",
    ),
    "servers as a list": (
        lambda: Producer({"bootstrap.servers": ["127.0.0.1:1"]}),
        'expected text, a number or a boolean for "bootstrap.servers", not list',
    ),
    "times of nothing": (
        lambda: asked("list_offsets", [ORDERS]),
        "timestamps: expected a mapping of TopicPartition to milliseconds, not list",
    ),
    "moves of nothing": (
        lambda: asked("alter_partition_reassignments", [ORDERS]),
        "targets: expected a mapping of TopicPartition to lists of brokers, not list",
    ),
    "quotas of nothing": (
        lambda: asked("alter_client_quotas", [ORDERS]),
        "changes: expected a mapping of QuotaEntity to its quotas, not list",
    ),
    "settings of Spark": (
        lambda: said_by_caller(["spark.driver.memory=4g"], {}),  # type: ignore[arg-type]
        'conf: expected a mapping by the names of Spark, such as {"spark.driver.memory": "4g"}, not list',
    ),
    "a copy that is to follow": (
        lambda: copy_topic("a", "b", from_servers="127.0.0.1:1", follow=True),  # type: ignore[arg-type]
        "follow: expected a threading.Event that is set to end it, or nothing, not bool",
    ),
    "a copy from a dict": (
        lambda: copy_topic("a", "b", from_servers=NOBODY),  # type: ignore[arg-type]
        "from_servers: expected a text, such as 127.0.0.1:9092, not dict",
    ),
}


@pytest.mark.parametrize("which", CALLS)
def test_it_is_not_asked_so(which: str) -> None:
    call, words = CALLS[which]
    with pytest.raises((TypeError, ValueError)) as refused:
        call()
    assert str(refused.value) == words


# A flow

orders, counts = Topic("orders", text, json_of(int)), Topic("counts", text, json_of(int))
dead_topic = Topic("dead", raw, raw)


def reading() -> Any:
    return Flow("f", version="1").read(orders)


def begun(**given: Any) -> object:
    return Flow("f", **{"version": "1", **given}).read(orders)


FLOWS: dict[str, tuple[Callable[[], object], str]] = {
    "no partitions": (
        lambda: Topic("orders", text, text, partitions=0),
        "Topic orders: partitions: expected a whole number of at least 1, not 0",
    ),
    "less than none": (
        lambda: Topic("orders", text, text, partitions=-3),
        "Topic orders: partitions: expected a whole number of at least 1, not -3",
    ),
    "partitions as a text": (
        lambda: Topic("orders", text, text, partitions="3"),  # type: ignore[arg-type]
        "Topic orders: partitions: expected a whole number of at least 1, not str",
    ),
    "a type as a codec": (
        lambda: Topic("orders", text, int),  # type: ignore[arg-type]
        "Topic orders: what its values are: expected a codec, such as text, raw or json_of(Order), not type",
    ),
    "a topic without a name": (
        lambda: Topic("", text, text),
        "the name of a topic: expected a text, such as orders, not an empty one",
    ),
    "dead letters without partitions": (
        lambda: Dead("dead", 0),
        "Topic dead: partitions: expected a whole number of at least 1, not 0",
    ),
    "a flow without a name": (
        lambda: Flow("", version="1"),
        "the name of a flow: expected a text, such as billing, not an empty one",
    ),
    "dead letters by name": (
        lambda: begun(otherwise="dead"),
        'flow f: otherwise: expected where they go, such as Dead("orders.dead"), not str',
    ),
    "dead letters as a topic": (
        lambda: Flow("f", version="1").read(orders, otherwise=dead_topic),  # type: ignore[arg-type]
        'flow f: otherwise: expected where they go, such as Dead("orders.dead"), not Topic',
    ),
    "read by name": (lambda: Flow("f", version="1").read("orders"), f"flow f: read: {A_TOPIC}"),  # type: ignore[arg-type]
    "a table by name": (lambda: Flow("f", version="1").table("orders"), f"flow f: table: {A_TOPIC}"),  # type: ignore[arg-type]
    "written by name": (lambda: reading().write("counts"), f"flow f: write: {A_TOPIC}"),
    "through a name": (lambda: reading().through("counts", key=str), f"flow f: through: {A_TOPIC}"),
    "late records by name": (
        lambda: reading().window("w", int, max, size_ms=1, late="late"),
        f"flow f: late of w: {A_TOPIC}",
    ),
    "a wait that is none": (
        lambda: Flow("f", version="1").read(orders, wait_ms=-1),
        "flow f: read of orders: wait_ms: expected a whole number of at least 0, not -1",
    ),
    "windows of half a second": (
        lambda: reading().window("w", int, max, size_ms=0.5),
        "w: size_ms: expected a whole number of at least 1, not float",
    ),
    "windows of nothing": (
        lambda: reading().window("w", int, max, size_ms=0),
        "w: size_ms: expected a whole number of at least 1, not 0",
    ),
    "ids without number": (
        lambda: reading().dedup("ids", str, most="many"),
        "ids: most: expected a whole number of at least 1, not str",
    ),
    "merged with a topic": (
        lambda: reading().merge("both", counts),
        "flow f: both: expected another stream of this flow, such as flow.read(payments), not Topic",
    ),
    "merged with another flow": (
        lambda: reading().merge("both", Flow("g", version="1").read(counts)),
        "flow f: both: a stream of flow g is merged. Read both in one flow",
    ),
    "joined with a topic": (
        lambda: reading().join(counts, max),
        "flow f: join: expected a table of this flow, such as flow.table(customers), not Topic",
    ),
    "only a name": (lambda: reading().only("Click"), "flow f: only: expected a type, such as Click, not str"),
    "a part that is a number": (
        lambda: reading().count(5),
        "flow f: the name of a part: expected a text, such as totals, not int",
    ),
    "files without a place": (
        lambda: reading().files(Path("lake")),
        "flow f: files of orders: where they go: expected a text, such as lake/orders or s3://lake/orders, not "
        "PosixPath",
    ),
    "files every now and then": (
        lambda: reading().files("lake", every_ms="600"),
        "flow f: files of orders: every_ms: expected a whole number of at least 0, not str",
    ),
    "run with an address": (
        lambda: whole().run("127.0.0.1:9092"),
        "what a flow is run with: expected the properties of a client, such as "
        '{"bootstrap.servers": "127.0.0.1:9092"}, not str',
    ),
}


def whole() -> Any:
    flow = Flow("f", version="1")
    flow.read(orders).write(counts)
    return flow


@pytest.mark.parametrize("which", FLOWS)
def test_a_flow_is_not_written_so(which: str) -> None:
    write, words = FLOWS[which]
    with pytest.raises((TypeError, ValueError)) as refused:
        write()
    assert str(refused.value) == words


OUTPUTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "one that is no list": (lambda stream: stream.step("s", int, lambda s, v, at: (s, 5)), "the step 's' returned 5"),
    "a text": (lambda stream: stream.step("s", int, lambda s, v, at: (s, "abc")), "the step 's' returned 'abc'"),
    "a mapping": (lambda stream: stream.step("s", int, lambda s, v, at: (s, {1: 2})), "the step 's' returned {1: 2}"),
    "a text of a step with timers": (
        lambda stream: stream.step("s", int, lambda s, v, at: (s, "abc"), lambda s, k, at: (s, [])),
        "the step 's' returned 'abc'",
    ),
    "a text of flat_map": (lambda stream: stream.flat_map(lambda value: "abc"), "flat_map returned 'abc'"),
    "a number of flat_map": (lambda stream: stream.flat_map(lambda value: 5), "flat_map returned 5"),
}


@pytest.mark.parametrize("which", OUTPUTS)
def test_outputs_that_are_no_list_stop_the_cell(which: str) -> None:
    write, words = OUTPUTS[which]
    flow = Flow("f", version="1")
    write(flow.read(orders)).write(counts)
    with pytest.raises(Stopped) as stopped:
        flow.simulate([orders.sent("a", 1), orders.sent("a", 2)])
    assert f"offset 0 of orders: TypeError: {words} as its outputs, and not a list of them, such as `[output]`" in str(
        stopped.value
    )


@pytest.mark.parametrize("several", [list, tuple, set, iter])
def test_outputs_may_be_whatever_gives_them_one_after_the_other(several: Callable[[list[int]], Any]) -> None:
    flow = Flow("f", version="1")
    flow.read(orders).flat_map(lambda value: several([7])).write(counts)
    assert flow.simulate([orders.sent("a", 1)])[counts] == [("a", 7)]


def test_ids_and_sources_that_are_of_another_type_stop_the_cell() -> None:
    for write, words in (
        (lambda stream: stream.dedup("ids", lambda value: value), "the id for 'ids' is 1, and not a text"),
        (lambda stream: stream.dedup_offsets("from", lambda value, at: value), "the source for 'from' is 1, and not ("),
    ):
        flow = Flow("f", version="1")
        write(flow.read(orders)).write(counts)  # type: ignore[no-untyped-call]
        with pytest.raises(Stopped) as stopped:
            flow.simulate([orders.sent("a", 1)])
        assert words in str(stopped.value)


# A port that is taken


@contextmanager
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def _alone(folder: Path, address: str) -> object:
    return Server(data_dir=folder, listeners=f"PLAINTEXT://{address}")


def _with_metrics(folder: Path, address: str) -> object:
    return Server(data_dir=folder, oncelog_metrics_listener=address)


def _cluster(folder: Path, address: str) -> object:
    return Parent(str(folder), 2, {}, addresses=["127.0.0.1:0", address])


def _beside(folder: Path, address: str) -> object:
    host, port = address.split(":")
    settings = read_settings({"log.dir": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"})
    return open_service(settings, beside=[(host, int(port))])


def _workers(folder: Path, address: str) -> object:
    settings = read_settings({"log.dir": str(folder), "listeners": f"PLAINTEXT://{address}"})
    return Workers(settings, 2)


@pytest.mark.parametrize("begin", [_alone, _with_metrics, _beside, _cluster, _workers])
def test_a_port_that_is_taken_leaves_no_folder_behind(begin: Callable[[Path, str], object], tmp_path: Path) -> None:
    with taken() as address:
        with pytest.raises(
            SettingsError, match=f"cannot listen on {address}.*Stop what listens there, or choose anothe"
        ):
            begin(tmp_path / "new" / "data", address)
        assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_host_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot listen on nohost\.invalid:1"):
        _alone(tmp_path / "data", "nohost.invalid:1")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_a_path(tmp_path: Path) -> None:
    with Server(data_dir=tmp_path / "data") as server:
        assert server.data_dir == str(tmp_path / "data")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        SettingsError, match=r"file cannot be used \(file exists\): name a folder that this user may wri"
    ):
        Server(data_dir=tmp_path / "file")


def test_a_broker_that_is_not_there_is_said() -> None:
    with Server() as server, pytest.raises(ValueError, match="a server that stands alone has no other brokers"):
        server.kill(1)
