"""A copy within a cluster whose brokers are killed, hang and are stopped meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import oncelog
from tests.cluster.elections import Elections, Harm
from tests.cluster.stock.doors import IMPATIENT_MS
from tests.cluster.stock.in_c import OurSender
from tests.cluster.writing import PARTITIONS, Writing, check
from tests.spark.copying.support import Copy, records

AT_ONCE = 600
TO_THE_END_S = 120
IMPATIENT: dict[str, Any] = {"socket_timeout_ms": IMPATIENT_MS, "socket_connection_setup_timeout_ms": IMPATIENT_MS}


@pytest.mark.thorough
def test_each_record_is_copied_once_and_in_order_while_brokers_go() -> None:
    """One copy begins before a broker goes, and one while it is away."""
    with oncelog.Server(brokers=3) as server, ThreadPoolExecutor(1) as thread:
        elections, servers = Elections(server, Path(server.data_dir)), server.bootstrap_servers
        copy = Copy(servers, "orders", "orders-copy", fetch_bytes=4096, **IMPATIENT)
        with OurSender(servers) as sender:
            writing = Writing(sender)
            copy.run()  # makes the topic: with three copies it needs all three brokers
            for harm in Harm:
                writing.send(AT_ONCE)
                writing.end()
                copying = [thread.submit(copy.run)]
                with elections.without(elections.leader(), harm):
                    copying.append(thread.submit(copy.run))
                    writing.send(AT_ONCE)
                    writing.end()
                for each in copying:
                    each.result(TO_THE_END_S)
        copy.run()
        check(servers, writing)
        for partition in range(PARTITIONS):
            assert records(servers, "orders-copy", partition) == records(servers, "orders", partition)
