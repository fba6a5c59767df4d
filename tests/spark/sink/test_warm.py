"""What a process keeps between tasks, and for how long."""

import subprocess
import sys
import threading
from collections import OrderedDict

import pytest

from oncelog.client.errors import KafkaException
from oncelog.spark.sink import warm_worker

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def _clusters_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is kept for as long as the process lives, and asks for metadata every five minutes: in the log of
    whatever test runs by then, it would find nobody there."""
    monkeypatch.setattr(warm_worker, "kept", OrderedDict())


def threads() -> int:
    return sum(thread.name == "oncelog-sink" for thread in threading.enumerate())


def test_connections_that_are_used_outlive_that_others_are_used_more() -> None:
    """A driver may run more sealed queries, each with properties of its own, than clusters are kept."""
    before = threads()
    used = warm_worker.cluster(NOBODY | {"client.id": "used"})
    for number in range(warm_worker.MOST_CLUSTERS):
        warm_worker.cluster(NOBODY | {"client.id": f"other {number}"})

    async def is_alive() -> bool:
        return True

    assert used.run(is_alive())
    assert threads() <= before + warm_worker.MOST_CLUSTERS + 1
    del used
    assert threads() <= before + warm_worker.MOST_CLUSTERS, "with its last user it ends"


def test_settings_that_cannot_be_used_leave_no_thread_behind() -> None:
    before = threads()
    with pytest.raises(KafkaException):
        warm_worker.cluster(NOBODY | {"security.protocol": "ssl", "ssl.ca.location": "/nowhere/at/all"})
    assert threads() == before


FORKED = """
import os, threading
from oncelog.spark.sink import warm_worker

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}

class Slow(warm_worker.Cluster):
    def __init__(self, *about):
        making.set()
        go_on.wait()
        super().__init__(*about)

async def is_alive():
    return True

parents = warm_worker.cluster(NOBODY)
making, go_on = threading.Event(), threading.Event()
usual, warm_worker.Cluster = warm_worker.Cluster, Slow
other = threading.Thread(target=warm_worker.cluster, args=[NOBODY | {"client.id": "other"}])
other.start()
making.wait()  # and holds the lock
child = os.fork()
if child == 0:
    warm_worker.Cluster = usual
    is_right = warm_worker.cluster(NOBODY) is not parents and warm_worker.cluster(NOBODY).run(is_alive())
    os._exit(0 if is_right else 1)
go_on.set()
other.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert warm_worker.cluster(NOBODY) is parents and parents.run(is_alive())
"""


def test_a_forked_process_connects_by_itself_whoever_held_the_lock() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
