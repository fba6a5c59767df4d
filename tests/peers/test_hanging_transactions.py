"""Transactions of which no coordinator knows hold readers back for ever. `kafka-transactions.sh` finds them and aborts
them, on our server as on Kafka."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.peers.apache import quick_kafka
from tests.peers.committed import all_committed
from tests.peers.jars import MissingPeer, kafka_java, need_or_skip
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.questions.transacting import COMMIT, added, begun, ended, latest, written
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

# Whoever says that it is in a transaction is believed: so one comes to be that was never begun.
UNASKED = {"transaction.partition.verification.enable": "false"}
READ_COMMITTED, LATEST = 1, -1
TOOL_S = 90


@contextmanager
def serving(name: str, folder: Path) -> Iterator[ServerProcess]:
    if name == "kafka":
        with quick_kafka(folder, UNASKED) as kafka:
            yield kafka
        return
    with OncelogProcess(folder, settings=UNASKED) as server:
        yield server


class Tool:
    def __init__(self, server: ServerProcess) -> None:
        self._servers = server.bootstrap_servers

    def __call__(self, *words: str) -> list[dict[str, str]]:
        """The rows of the table that it prints."""
        tool = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", self._servers)
        try:
            order = kafka_java(*tool, *words)
        except MissingPeer as missing:
            need_or_skip(missing)
        done = subprocess.run(order, capture_output=True, text=True, timeout=TOOL_S, check=False)
        assert done.returncode == 0, done.stderr
        lines = [[cell.strip() for cell in line.rstrip().split("\t")] for line in done.stdout.splitlines()]
        return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["oncelog", "kafka"])
def test_who_hangs_is_found_and_aborted_and_who_works_is_neither(name: str, tmp_path: Path) -> None:
    with serving(name, tmp_path) as server, RawConnection(server.port) as raw:
        raw.create_topic("t", 2)
        tool, node_id = Tool(server), raw.call("metadata", 9, topics=[]).brokers[0].node_id
        hangs, works = begun(raw, "hangs"), begun(raw, "works")
        written(raw, hangs, "t", 0, b"never", b"begun")
        added(raw, works, "t", 0)
        written(raw, works, "t", 0, b"kept")

        def found() -> list[tuple[str, ...]]:
            rows = tool("find-hanging", "--broker-id", str(node_id), "--max-transaction-timeout", "0")
            return [(row["Topic"], row["Partition"], row["ProducerId"], row["StartOffset"]) for row in rows]

        assert found() == [("t", "0", str(hangs.pid), "0")]
        assert latest(raw, "t", LATEST, READ_COMMITTED) == ("none", 0)
        (described,) = tool("describe", "--transactional-id", "works")
        assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", "t-0")
        tool("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert found() == []
        assert latest(raw, "t", LATEST, READ_COMMITTED) == ("none", 2)  # where the other one begins, which goes on
        ended(raw, works, COMMIT)
        assert {row["TransactionalId"]: row["TransactionState"] for row in tool("list")} == {
            "hangs": "Empty",
            "works": "CompleteCommit",
        }
        producers = tool("describe-producers", "--topic", "t", "--partition", "0")
        assert {row["CurrentTransactionStartOffset"] for row in producers} == {"None"}
        assert [each.value() for each in all_committed(server.bootstrap_servers, "t", 2)] == [b"kept"]
