"""`oncelog cluster start --zookeeper`: brokers of this machine that agree in a ZooKeeper."""

import signal
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import oncelog
from oncelog import embedded
from oncelog.chaos.life import free_ports
from oncelog.cli import main
from oncelog.client import NewTopic, Producer
from oncelog.client.admin import Admin
from oncelog.cluster import parent
from oncelog.cluster.tree_zookeeper import ZooKeeperTree
from tests.cluster.commands import started
from tests.cluster.test_processes import IMPATIENT, all_in_sync, all_know_that_all_are_in_sync, conf_of, leader
from tests.cluster.test_tree_zookeeper import CLOCK, TIMEOUT_MS
from tests.cluster.writing import PARTITIONS, Writing, check
from tests.cluster.zookeeper import ZooKeeper, running_zookeeper
from tests.waiting import until

END_S = 60
AT_ONCE = 300


def somewhere(server: ZooKeeper) -> str:
    return f"127.0.0.1:{server.port}/tests/{uuid.uuid4()}"


def produce(config: dict[str, str], value: bytes) -> None:
    with Producer({**config, "enable.idempotence": True}) as producer:
        producer.produce("orders", value)
        assert producer.flush(60) == 0


@pytest.mark.peers
@pytest.mark.parametrize("is_secure", [False, pytest.param(True, marks=pytest.mark.thorough)])
async def test_brokers_agree_in_zookeeper_and_go_on_from_there_when_they_are_started_again(
    tmp_path: Path, is_secure: bool
) -> None:
    where, folder = somewhere(running_zookeeper()), tmp_path / "data"
    command = ["cluster", "start", "--brokers", "2", "--zookeeper", where, *(["--secure"] if is_secure else [])]
    for value in (b"one", b"two"):
        with started(folder, *command) as (process, line):
            servers = line.split("2 brokers listen on ")[1].split(" and ")[0]
            config = {"bootstrap.servers": servers}
            if is_secure:
                file = (folder / "secure" / "client.properties").read_text()
                config = dict(each.split("=", 1) for each in file.splitlines() if "=" in each)
            produce(config, value)
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_S) == 0
    assert not (folder / "tree").exists()
    hosts, _, chroot = where.partition("/")
    tree = ZooKeeperTree(hosts, f"/{chroot}", CLOCK, session_timeout_ms=TIMEOUT_MS)
    await tree.begin_session()
    assert "orders" in await tree.children("/topics")
    assert list(await tree.children("/nodes")) == ["1", "2"]
    assert await tree.children("/live") == {}
    assert (await tree.get("/users") is not None) == is_secure
    await tree.close()


@pytest.mark.peers
def test_a_server_in_this_process_is_a_broker_among_those_that_agree_there() -> None:
    settings: dict[str, str | int] = {
        "oncelog.cluster": f"zk://{somewhere(running_zookeeper())}",
        "default.replication.factor": 2,
    }
    with (
        oncelog.Server(settings={**settings, "node.id": 1}) as first,
        oncelog.Server(settings={**settings, "node.id": 2}) as second,
    ):
        until(lambda: len(first.service.broker.cluster.members) == 2, "the first broker to see the second one")
        produce(first.client_config, b"one")
        admin = Admin(second.client_config)
        (partition,) = admin.list_topics("orders").topics["orders"].partitions.values()
        assert sorted(partition.replicas) == [1, 2]
        assert second.service.broker.node_id == second.broker.node_id == 2


def test_a_server_that_cannot_reach_where_brokers_agree_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_TIMEOUT_S", 0.5)
    where = f"zk://127.0.0.1:{free_ports(1)[0]}/nobody"
    with pytest.raises(TimeoutError, match=f"does {where} answer"):
        oncelog.Server(settings={"oncelog.cluster": where})


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeper]:
    running_zookeeper()  # says what is missing
    server = ZooKeeper(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.mark.peers
@pytest.mark.thorough
def test_nothing_is_lost_when_brokers_and_their_zookeeper_are_killed(own_server: ZooKeeper, tmp_path: Path) -> None:
    settings = {"oncelog.cluster": f"zk://{somewhere(own_server)}"}
    with oncelog.Server(brokers=3, data_dir=str(tmp_path / "data"), settings=settings) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result()
        with Producer(conf_of(cluster) | IMPATIENT) as producer:
            writing = Writing(producer)
            for _ in range(2):
                writing.send(AT_ONCE)
                killed = leader(cluster)
                cluster.kill(killed)
                writing.send(AT_ONCE)
                writing.end()
                own_server.kill()
                writing.send(AT_ONCE)
                writing.end()  # with those that are in sync
                own_server.start()
                cluster.start(killed)
                until(lambda: all_in_sync(cluster), "the killed broker to be in sync")
            silent = leader(cluster)
            cluster.pause(silent)
            try:
                writing.send(AT_ONCE)
                until(lambda: leader(cluster) != silent, "another leader")
                writing.end()
            finally:
                cluster.resume(silent)
            until(lambda: all_know_that_all_are_in_sync(cluster), "the broker that hung to know who leads")
        check(cluster.bootstrap_servers, writing)


@pytest.mark.peers
@pytest.mark.thorough
def test_a_cluster_of_a_test_that_secures_itself_agrees_in_zookeeper(tmp_path: Path) -> None:
    settings = {"oncelog.cluster": f"zk://{somewhere(running_zookeeper())}"}
    for value in (b"one", b"two"):
        with oncelog.Server(brokers=3, secure=True, data_dir=str(tmp_path / "data"), settings=settings) as cluster:
            assert cluster.client_config["security.protocol"].lower() == "sasl_ssl"
            produce(cluster.client_config, value)
            killed = leader(cluster)
            cluster.kill(killed)
            produce(cluster.client_config, value)
            cluster.start(killed)
            until(partial(all_in_sync, cluster), "the killed broker to be in sync")


# What keeps it from starting


def refused(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(main, ["cluster", "start", "--listen", "127.0.0.1:0", "--data", str(folder), *words])
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    return done.output


def test_without_an_answer_it_says_so_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "REACHED_S", 0.1)
    where = f"127.0.0.1:{free_ports(1)[0]}/x"
    for _ in range(2):  # the folder is free again
        said = refused(tmp_path / "data", "--zookeeper", where, "--set", "oncelog.zookeeper.username=me")
        assert "give both, or neither" in said
        assert f"zk://{where} cannot be reached" in refused(tmp_path / "data", "--zookeeper", f"zk://{where}")


def test_a_cluster_of_a_test_that_secures_itself_looks_for_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "REACHED_S", 0.1)
    where = f"zk://127.0.0.1:{free_ports(1)[0]}/x"
    with pytest.raises(parent.TreeFailed, match=f"{where} cannot be reached"):
        oncelog.Server(brokers=2, secure=True, settings={"oncelog.cluster": where})


def test_a_server_without_a_port_is_no_address(tmp_path: Path) -> None:
    assert "oncelog.cluster=zoo1: expected HOST:PORT" in refused(tmp_path, "--zookeeper", "zoo1/oncelog")
    assert "oncelog.cluster=unix:x: expected zk://" in refused(tmp_path, "--set", "oncelog.cluster=unix:x")


def test_without_kazoo_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("tree_zookeeper", "zookeeper_security"):
        monkeypatch.delitem(sys.modules, f"oncelog.cluster.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    assert "pip install 'oncelog[zookeeper]'" in refused(tmp_path, "--zookeeper", "127.0.0.1:2181/oncelog")
