"""Quix Streams with `processing_guarantee="exactly-once"` on our server: positions, results and what it keeps of each
key, in a changelog topic, are committed together."""

import os
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.flow_contestant import frameworks
from tests.peers.committed import all_committed, committed
from tests.peers.jars import MissingPeer, need_or_skip
from tests.peers.living import living
from tests.peers.oncelog_process import OncelogProcess

PROGRAM = Path(__file__).parent / "quix" / "counting.py"
RECORDS, KEYS = 6_000, 7


@pytest.mark.thorough
@pytest.mark.timeout(900)  # where it is installed first
def test_quix_counts_exactly_once_though_it_and_the_server_are_killed(tmp_path: Path) -> None:
    try:
        python = frameworks()
    except MissingPeer as missing:
        need_or_skip(missing)
    with OncelogProcess(tmp_path / "server") as server:
        servers = server.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(topic, 2) for topic in ("in", "out")]).values():
            made.result()
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

        def produce(first: int, last: int) -> None:
            for number in range(first, last):
                producer.produce("in", b"v", key=b"%d" % (number % KEYS))
            producer.flush()

        produce(0, RECORDS // 2)
        command = [str(python), str(PROGRAM), servers, "counting", "in", "out", str(tmp_path / "state")]
        with living(*command, log=tmp_path / "quix.log", environment={**os.environ, "PYTHONPATH": ""}) as kill:
            for number, _ in enumerate(committed(servers, "out", 2, RECORDS)):
                if number == RECORDS // 4:
                    produce(RECORDS // 2, RECORDS)
                if number in (100, RECORDS // 2 + 100):
                    kill()
                if number in (RECORDS // 4, RECORDS * 3 // 4):
                    server.kill()
                    server.start()
        counts: dict[bytes | None, list[int]] = defaultdict(list)
        for each in all_committed(servers, "out", 2):
            counts[each.key()].append(int(each.value() or b""))
        assert {key: list(range(1, len(found) + 1)) for key, found in counts.items()} == counts
        assert sum(map(len, counts.values())) == RECORDS
