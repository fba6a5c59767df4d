"""What a broker does, and says, while ZooKeeper is away for long."""

import logging

import pytest
from kazoo.retry import ForceRetryError, KazooRetry

from oncelog.cluster.tree_zookeeper import AGAIN_S, MOST_SAID, RETRY, kazoo_logger
from tests.logged import messages

TRIES = 2_000


class BackAgain(Exception):
    pass


def test_it_tries_again_at_an_even_pace() -> None:
    """Kazoo's own pauses are multiplied by chance each time, and come to next to nothing."""
    pauses: list[float] = []

    def connect() -> None:
        raise BackAgain if len(pauses) == TRIES else ForceRetryError

    with pytest.raises(BackAgain):
        KazooRetry(**RETRY, sleep_func=pauses.append)(connect)
    assert set(pauses) == {AGAIN_S}


def test_each_thing_about_it_is_said_once_until_there_is_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        for _ in range(10):
            for host in ("zoo1", "zoo2"):
                kazoo_logger.info("Connecting to %s", host)
                kazoo_logger.warning("Connection dropped: Connection refused")
        kazoo_logger.info("Zookeeper connection established, state: CONNECTED")
    once = ["Connecting to zoo1", "Connection dropped: Connection refused", "Connecting to zoo2"]
    assert messages(caplog, "oncelog.cluster") == [*once, "Zookeeper connection established, state: CONNECTED"] * 2
    for number in range(3 * MOST_SAID):
        kazoo_logger.info("%d", number)
    assert len(messages(caplog, "oncelog.cluster")) == 8 + 3 * MOST_SAID, "what is remembered has a bound"
