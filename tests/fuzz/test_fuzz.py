"""Mutated requests harm nobody but the connection that they came on."""

from pathlib import Path

import pytest

from tests.depth import deeper, scaled
from tests.fuzz.campaign import GROWTH_MB, Campaign, resident_mb
from tests.fuzz.server import fuzzed_server
from tests.fuzz.slow import SlowCampaign
from tests.raw import RawConnection, batch

CASES = scaled(1000)


@deeper
@pytest.mark.parametrize("seed", [1])
def test_mutated_requests_of_every_api_and_version_are_refused_one_by_one(tmp_path: Path, seed: int) -> None:
    with fuzzed_server(tmp_path) as server:
        report = Campaign(server, seed).run(cases=CASES)
    assert report.answered > CASES / 10


@pytest.mark.thorough
def test_requests_at_their_limits_leave_nothing_in_memory(tmp_path: Path) -> None:
    """How long others wait is for `./dev fuzz --slow` to tell: a test would only measure the machine."""
    with fuzzed_server(tmp_path) as server:
        found = SlowCampaign(server, 5).run(rounds=4)
        assert server.is_running
    assert sum(found.grown_mb[1:]) < GROWTH_MB / 4, found


def test_a_client_of_one_byte_at_a_time_is_served_and_holds_up_nobody(tmp_path: Path) -> None:
    with fuzzed_server(tmp_path) as server, RawConnection(server.port) as slow, RawConnection(server.port) as other:
        other.create_topic("t")
        frame = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"  # ApiVersions v0
        for i in range(len(frame)):
            slow.socket.sendall(frame[i : i + 1])
            assert other.produce("t", 0, batch([b"x"])).base_offset == i
        assert slow.receive_bytes()[:4] == b"\x00\x00\x00\x07"


def test_a_client_that_does_not_read_its_answers_costs_bounded_memory(tmp_path: Path) -> None:
    with fuzzed_server(tmp_path) as server, RawConnection(server.port) as reader:
        reader.create_topic("t")
        for _ in range(20):
            reader.produce("t", 0, batch([bytes(900_000)]))
        before = resident_mb(server.pid)
        with RawConnection(server.port) as lazy:
            lazy.socket.settimeout(1)
            wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 32 << 20, "current_leader_epoch": -1}
            try:
                for _ in range(200):
                    lazy.ask(
                        "fetch",
                        11,
                        replica_id=-1,
                        min_bytes=1,
                        max_bytes=32 << 20,
                        session_epoch=-1,
                        topics=[{"topic": "t", "partitions": [wanted]}],
                    )
            except TimeoutError:
                pass  # the server has stopped to read from us, as it should
            assert reader.produce("t", 0, batch([b"x"])).base_offset == 20
            assert resident_mb(server.pid) - before < GROWTH_MB
