"""What `oncelog doctor -b` tells of a real Kafka, and of ours."""

import asyncio

from oncelog.doctor.cluster import check_cluster
from oncelog.doctor.finding import Verdict
from oncelog.doctor.listen_address import check_listeners
from oncelog.server.listeners import Listener
from tests.peers.server_process import ServerProcess


def test_both_servers_are_told_apart_and_found_whole(server: ServerProcess) -> None:
    findings = asyncio.run(check_cluster({"bootstrap.servers": f"127.0.0.1:{server.port}"}, 10.0))
    assert [each.verdict for each in findings] == [Verdict.OK] * 3
    about = findings[0].facts
    if server.name == "Apache Kafka":
        assert (about["is_oncelog"], about["kafka_release"]) == (False, "4.1")
    else:
        assert about["is_oncelog"] is True


def test_a_port_at_which_one_of_them_answers_is_told_apart(server: ServerProcess) -> None:
    (found,) = asyncio.run(check_listeners([Listener("PLAINTEXT", "127.0.0.1", server.port)]))
    expected = (Verdict.NOTE, "kafka") if server.name == "Apache Kafka" else (Verdict.OK, "oncelog")
    assert (found.verdict, found.facts["answers"]) == expected
