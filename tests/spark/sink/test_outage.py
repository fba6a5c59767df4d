"""A broker that dies while lanes write: they wait for it, and go on by themselves."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from oncelog.spark.sink.errors import SinkRefused
from tests.peers.apache import quick_kafka
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.spark.conftest import SETTINGS
from tests.spark.sink.support import Sink, cut, make_topic, numbers, table, values, values_of

ROWS = numbers(0, 6000)


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.thorough)])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own, to be killed."""
    if request.param == "oncelog":
        with OncelogProcess(tmp_path, settings=SETTINGS) as server:
            yield server
        return
    with quick_kafka(tmp_path, SETTINGS) as server:
        yield server


def test_a_broker_that_dies_while_a_task_writes_is_waited_for(mortal: ServerProcess, topic: str) -> None:
    make_topic(mortal, topic)
    sink = Sink(mortal, topic)
    restarting = threading.Thread(target=mortal.start)

    def rows() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(cut(ROWS, 1000)):
            if number == 3:
                mortal.kill()
                restarting.start()
            yield batch

    message = sink.lane(0, 0, rows())
    restarting.join()
    sink.commit(0, [message])
    sink.run(1, [ROWS])
    assert values(mortal, topic) == values_of(ROWS, ROWS)


def test_a_broker_that_is_not_there_when_a_task_begins_or_a_driver_commits_is_waited_for(
    tmp_path: Path, topic: str
) -> None:
    with OncelogProcess(tmp_path, settings=SETTINGS) as server:
        make_topic(server, topic)
        sink = Sink(server, topic)
        sink.run(0, [ROWS])
        with dead_for_a_while(server):
            message = sink.lane(1, 0, cut(ROWS, 1000))
        with dead_for_a_while(server):
            sink.commit(1, [message])
        assert values(server, topic) == values_of(ROWS, ROWS)


@pytest.mark.thorough  # twelve seconds of waiting; the bound is that of `send`, which the producer's own tests show
def test_a_task_takes_no_more_rows_than_it_has_room_for(tmp_path: Path, topic: str) -> None:
    rows = table([(None, bytes(1000))] * 500)
    with OncelogProcess(tmp_path, settings=SETTINGS) as server:
        make_topic(server, topic)
        sink = Sink(server, topic, kafka_buffer_memory=str(4 << 20), kafka_delivery_timeout_ms="3000")
        sink.run(0, [ROWS])
        taken = 0

        def endless() -> Iterator[pa.RecordBatch]:
            nonlocal taken
            yield table(ROWS)
            os.kill(server.pid, signal.SIGSTOP)
            while True:
                taken += rows.nbytes
                yield rows

        try:
            with pytest.raises(SinkRefused, match="timed out"):
                sink.lane(1, 0, endless())
            with pytest.raises(
                SinkRefused, match=r"could not be asked for 3 s: (it does not answer|nobody answers at 127\.0\.0\.1)"
            ):
                sink.lane(1, 0, [])
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert taken <= (4 << 20) + 2 * rows.nbytes


@contextmanager
def dead_for_a_while(server: ServerProcess) -> Iterator[None]:
    server.kill()
    restarting = threading.Thread(target=server.start)
    restarting.start()
    yield
    restarting.join()
