"""The experiment on a Kafka of the user's: only connections are hurt, and it is left as it was found."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.chaos.experiment import run
from oncelog.chaos.outcome import Options, Outcome, Verdict
from oncelog.chaos.plan import Target
from oncelog.chaos.report import lines
from oncelog.client import Admin
from tests.peers.apache import QUICK_BROKER, ApacheKafka
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip
from tests.peers.server_process import ServerProcess
from tests.waiting import until

HURT = frozenset({Target.CONNECTIONS, Target.RESPONSES})


def topics_of(server: ServerProcess) -> set[str]:
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        return set(admin.list_topics().topics)


@pytest.mark.parametrize("client", ["oncelog", pytest.param("librdkafka", marks=pytest.mark.thorough)])
def test_a_kafka_is_hurt_and_left_as_it_was_found(kafka: ServerProcess, tmp_path: Path, client: str) -> None:
    before = topics_of(kafka)
    targets = HURT | ({Target.PRODUCER} if client == "oncelog" else frozenset())
    options = Options(messages=30_000, rate=15_000, every=2_000, client=client, partitions=2, targets=targets)
    found = run_on(kafka, options, tmp_path)
    assert found.verdict is Verdict.EXACT, lines(found)
    assert found.left == ()
    # Of what others have removed before, Kafka's broker need not have heard yet.
    until(lambda: topics_of(kafka) <= before, "its topic to be gone")


def test_topics_stay_where_there_is_something_to_look_at_or_the_user_wants_them(
    kafka: ServerProcess, tmp_path: Path
) -> None:
    wrong = Options(
        messages=20_000, topic="wrong", rate=15_000, every=2_000, is_idempotent=False, targets=HURT, client="librdkafka"
    )
    found = run_on(kafka, wrong, tmp_path / "wrong")
    assert found.verdict is Verdict.NOT_EXACT
    assert f"left on {kafka.bootstrap_servers}: wrong" in lines(found)
    kept = Options(messages=100, topic="kept", is_kept=True)
    assert run_on(kafka, kept, tmp_path / "kept").left == ("kept",)
    assert {"wrong", "kept"} <= topics_of(kafka)


@pytest.mark.thorough
def test_of_a_kafka_of_three_brokers_all_connections_are_hurt(tmp_path: Path) -> None:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    copies = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with ExitStack() as stack:
        three = [ApacheKafka(tmp_path / str(node), settings=copies, jvm=QUICK_BROKER) for node in (1, 2, 3)]
        for each in three:
            each.join(three)
        for each in three:
            stack.callback(each.kill)
            each.begin()
        for each in three:
            each.await_first_answer()
        servers = ",".join(each.bootstrap_servers for each in three)
        options = Options(messages=30_000, rate=5_000, every=2_000, partitions=3, targets=HURT, servers=servers)
        (tmp_path / "run").mkdir()
        found = run(options, tmp_path / "run")
    assert found.verdict is Verdict.EXACT, lines(found)
    assert {each.target for each in found.happened} == HURT


def run_on(kafka: ServerProcess, options: Options, folder: Path) -> Outcome:
    folder.mkdir(exist_ok=True)
    return run(replace(options, servers=kafka.bootstrap_servers), folder)
