"""Workers that share a data folder: nothing that was acknowledged is lost, twice or out of order when one of them dies
or hangs; no two of them have a partition open; and a server that stands alone may have the folder before and after."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from oncelog.client import Producer
from oncelog.clock import SystemClock
from oncelog.cluster.documents import TOPICS, Held, decode_topic, put_topic
from oncelog.cluster.folder_lock import FolderInUse
from oncelog.cluster.tree import Node, Outdated, Put, Remove
from oncelog.cluster.tree_socket import SocketTree
from oncelog.cluster.workers import Workers
from oncelog.log.config import LogConfig
from oncelog.server.settings_reading import read_settings
from oncelog.server.topic import Topic
from oncelog.settings import SettingsError
from tests.cluster.commands import started
from tests.cluster.writing import PARTITIONS, Writing, check
from tests.lives.processes import await_end, children, kill, lives
from tests.raw import RawConnection, batch
from tests.waiting import until

AT_ONCE = 500
END_S = 60


def conf_of(servers: str) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2}


def make(servers: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, partitions)]).values():
        made.result(30)


def leaders(servers: str, topic: str = "orders") -> list[int]:
    found = AdminClient({"bootstrap.servers": servers}).list_topics(topic, timeout=60).topics[topic].partitions
    return [found[index].leader for index in sorted(found)]


@contextmanager
def workers(folder: Path, count: int = 2, **timeouts: int) -> Iterator[Workers]:
    settings = read_settings({"log.dir": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"})
    with Workers(settings, count, **timeouts) as parent:
        yield parent


def test_workers_that_are_killed_lose_nothing_and_keep_nothing_twice(tmp_path: Path) -> None:
    with oncelog.Server(workers=2, data_dir=str(tmp_path)) as server:
        make(server.bootstrap_servers, "orders")
        assert set(leaders(server.bootstrap_servers)) == {1, 2}
        producer = confluent_kafka.Producer(conf_of(server.bootstrap_servers))
        writing = Writing(producer)
        for victim in (1, 2):
            writing.send(AT_ONCE)
            producer.poll(0)
            server.kill(victim)
            writing.send(AT_ONCE)
            writing.end()
            assert set(leaders(server.bootstrap_servers)) == {3 - victim}
            server.start(victim)
            until(lambda: set(leaders(server.bootstrap_servers)) == {1, 2}, "its share to be the worker's again")
        writing.send(AT_ONCE)
        writing.end()
        check(server.bootstrap_servers, writing)
    with oncelog.Server(data_dir=str(tmp_path)) as alone:
        check(alone.bootstrap_servers, writing)


def test_a_worker_that_ends_by_itself_is_started_again(tmp_path: Path) -> None:
    with workers(tmp_path) as parent:
        ended, address = parent.pid(1), parent.address(1)
        make(parent.bootstrap_servers, "orders")
        with Producer(conf_of(parent.bootstrap_servers)) as producer:
            writing = Writing(producer)
            writing.send(AT_ONCE)
            kill(ended)
            writing.send(AT_ONCE)
            writing.end()
        until(lambda: set(leaders(parent.bootstrap_servers)) == {1, 2}, "another worker 1, with its share")
        assert (parent.pid(1) != ended, parent.address(1)) == (True, address)
        check(parent.bootstrap_servers, writing)


def test_a_worker_that_hangs_is_killed_before_another_one_has_its_partitions(tmp_path: Path) -> None:
    with workers(tmp_path, session_timeout_ms=1000) as parent:
        make(parent.bootstrap_servers, "orders")
        with Producer(conf_of(parent.bootstrap_servers) | {"socket.timeout.ms": 3000}) as producer:
            writing = Writing(producer)
            writing.send(AT_ONCE)
            writing.end()
            silent = parent.pid(2)
            parent.pause(2)
            writing.send(AT_ONCE)
            until(lambda: not lives(silent), "the worker that hangs to be killed")
            writing.end()
        check(parent.bootstrap_servers, writing)


def test_workers_go_on_with_the_folder_of_a_server_that_stood_alone(tmp_path: Path) -> None:
    with oncelog.Server(data_dir=str(tmp_path)) as alone:
        make(alone.bootstrap_servers, "orders")
        with Producer(conf_of(alone.bootstrap_servers)) as producer:
            writing = Writing(producer)
            writing.send(AT_ONCE)
            writing.end()
        check(alone.bootstrap_servers, writing)  # and stores what its group has read
        pid = granted(alone.bootstrap_servers)
    with workers(tmp_path) as parent:
        check(parent.bootstrap_servers, writing)
        assert granted(parent.address(1)) > pid
        make(parent.bootstrap_servers, "more")
        pid = max(granted(parent.address(1)), granted(parent.address(2)))
    with oncelog.Server(data_dir=str(tmp_path)) as alone:
        check(alone.bootstrap_servers, writing)
        assert leaders(alone.bootstrap_servers, "more") == [1] * PARTITIONS
        assert granted(alone.bootstrap_servers) > pid


def granted(server: str) -> int:
    with RawConnection(server) as raw:
        return raw.init_producer_id()[0]


def test_what_a_worker_leased_is_known_to_the_others_and_to_those_that_come_later(tmp_path: Path) -> None:
    with oncelog.Server(workers=2, data_dir=str(tmp_path)) as server:
        make(server.bootstrap_servers, "orders", 3)
        one, two, _ = leaders(server.bootstrap_servers)
        address = dict(zip((1, 2), server.bootstrap_servers.split(","), strict=True))
        topics = [{"name": "orders", "partitions": [0, 1, 2]}]
        with RawConnection(address[one]) as raw:
            lease = raw.call("lease_pid", 0, topics=topics).topics[0].partitions[0]
            first = batch([b"x"], pid=lease.producer_id, epoch=lease.generation, sequence=0)
            assert raw.produce("orders", 0, first).error_code == 0
        server.kill(one)
        with RawConnection(address[two]) as raw:
            raw.await_leaders("orders", [0, 1, 2])
            again, new = raw.produce("orders", 0, first), raw.produce("orders", 1, first)
            assert [(each.error_code, each.base_offset) for each in (again, new)] == [(0, 0), (0, 0)]
            assert raw.offset_at("orders", 0, -1).offset == 1
        server.start(one)
        until(lambda: leaders(server.bootstrap_servers) == [one, two, one], "its share to be the worker's again")
        with RawConnection(address[one]) as raw:
            assert raw.produce("orders", 2, first).error_code == 0  # a lease from before this process began


def test_a_topic_can_be_made_again_as_soon_as_it_is_deleted(tmp_path: Path) -> None:
    with workers(tmp_path) as parent:
        admin = AdminClient({"bootstrap.servers": parent.bootstrap_servers})
        for _ in range(3):
            make(parent.bootstrap_servers, "orders")
            with Producer(conf_of(parent.bootstrap_servers)) as producer:
                writing = Writing(producer)
                writing.send(AT_ONCE)
                writing.end()
            check(parent.bootstrap_servers, writing)
            admin.delete_topics(["orders"])["orders"].result(30)
        kill(parent.pid(1))
        make(parent.bootstrap_servers, "orders")
    assert sorted(each.name for each in tmp_path.glob("orders-*")) == [f"orders-{index}" for index in range(PARTITIONS)]


async def asked(tree_path: str, *changes: Put | Remove) -> Node:
    """The node of the topic, behind these changes."""
    tree = SocketTree(tree_path, SystemClock())
    await tree.begin_session()
    try:
        if changes:
            await tree.change(*changes)
        found = await tree.get(f"{TOPICS}/orders")
        assert found is not None
        return found
    finally:
        await tree.close()


def test_a_change_of_a_deleted_topic_is_none_of_the_next_one_with_its_name(tmp_path: Path) -> None:
    """Also if it names the version that the next one has. Who is late with it need not have a part of the topic."""
    with workers(tmp_path, 1) as parent:
        servers = parent.bootstrap_servers

        def made() -> Node:
            make(servers, "orders", 1)
            until(lambda: leaders(servers) == [1], "that it is led")
            return asyncio.run(asked(parent.tree_path))

        before = decode_topic(made().value)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_topics(["orders"])["orders"].result(30)
        after = made()
        held = Held(Topic(before.definition("orders"), LogConfig()), before, after.version)
        with pytest.raises(Outdated):
            asyncio.run(asked(parent.tree_path, *put_topic(held, before)))
        assert asyncio.run(asked(parent.tree_path)) == after


def test_what_a_group_has_read_survives_the_worker_that_stored_it(tmp_path: Path) -> None:
    with oncelog.Server(workers=2, data_dir=str(tmp_path)) as server:
        make(server.bootstrap_servers, "orders", 1)
        place = confluent_kafka.TopicPartition("orders", 0, 7)
        group = {"bootstrap.servers": server.bootstrap_servers, "group.id": "readers"}
        consumer = confluent_kafka.Consumer(group)
        consumer.commit(offsets=[place], asynchronous=False)
        (coordinator,) = set(leaders(server.bootstrap_servers, "__consumer_offsets"))
        server.kill(coordinator)
        (found,) = consumer.committed([place], timeout=30)
        consumer.close()
        assert found.offset == 7


def test_no_other_server_has_the_folder_while_a_worker_lives(tmp_path: Path) -> None:
    """Their parent is gone, and one that hangs could go on."""
    with started(tmp_path, *COMMAND) as (process, line):
        servers = line.removeprefix("2 workers listen on ").partition(" and ")[0]
        make(servers, "orders")
        with Producer(conf_of(servers)) as producer:
            writing = Writing(producer)
            writing.send(AT_ONCE)
            writing.end()
        first, second = children(process.pid)
        subprocess.run(["kill", "-STOP", str(second)], check=True)
        process.kill()
        process.wait()
        await_end(first)
        with pytest.raises(FolderInUse):
            oncelog.Server(data_dir=str(tmp_path))
        kill(second)
        until(lambda: is_free(tmp_path), "the folder to be free")
    with oncelog.Server(data_dir=str(tmp_path)) as alone:
        check(alone.bootstrap_servers, writing)


def is_free(folder: Path) -> bool:
    try:
        with oncelog.Server(data_dir=str(folder)):
            return True
    except FolderInUse:
        return False


COMMAND = ("serve", "--workers", "2")


def test_the_command_prints_where_workers_listen_and_ends_with_them(tmp_path: Path) -> None:
    with started(tmp_path, *COMMAND) as (process, line):
        pids = children(process.pid)
        addresses, where = line.removeprefix("2 workers listen on ").split(" and keep their data in ")
        assert where == f"{tmp_path}\n"
        with RawConnection(addresses.split(",")[1]) as raw:
            until(
                lambda: [each.node_id for each in raw.call("metadata", 12, topics=[]).brokers] == [1, 2],
                "each worker to know the other",
            )
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0
        assert len(pids) == 2
        assert not any(lives(each) for each in pids)


@pytest.mark.parametrize("count", [0, 17])
def test_there_are_one_to_sixteen_workers(count: int, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"{count} workers: expected 1 to 16"):
        oncelog.Server(workers=count)


def test_workers_are_no_brokers_of_a_cluster() -> None:
    with pytest.raises(SettingsError, match=r"workers and oncelog\.cluster: each broker of a cluster is one process"):
        oncelog.Server(workers=2, settings={"oncelog.cluster": "zk://127.0.0.1:1/nobody"})
