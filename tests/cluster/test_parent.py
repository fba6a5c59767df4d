"""Brokers as processes: which end with what started them, and are started again where they end by themselves."""

import signal
from pathlib import Path

import pytest

import oncelog
from oncelog.cluster.parent import BrokerEnded, Parent, copies
from oncelog.settings import SettingsError
from tests.cluster.commands import started
from tests.lives.processes import await_end, children, kill, lives
from tests.raw import RawConnection
from tests.waiting import until

END_S = 60


def test_a_broker_that_ends_by_itself_is_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Parent(str(tmp_path), 1, copies(1)) as parent:
        address, ended = parent.address(1), parent.pid(1)
        parent.keep_up()
        assert parent.pid(1) == ended
        kill(ended)

        def is_another() -> bool:
            parent.keep_up()
            return parent.pid(1) != ended

        until(is_another, "another broker")
        assert "broker 1 ended with -9 and is started again" in caplog.messages
        assert (parent.address(1), parent.bootstrap_servers) == (address, address)
        with RawConnection(address) as raw:
            assert [each.node_id for each in raw.call("metadata", 12, topics=[]).brokers] == [1]


def test_a_broker_that_cannot_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    parent = Parent(str(tmp_path), 1, {"num.partitions": "many"})
    with pytest.raises(BrokerEnded, match=r"broker 1 ended with 2: (.|\n)*num\.partitions=many"):
        parent.__enter__()
    with Parent(str(tmp_path), 1, copies(1)) as again:  # nothing was left behind
        assert lives(again.pid(1))


def test_a_server_of_several_brokers_is_asked_by_the_protocol_alone() -> None:
    with oncelog.Server(brokers=2) as server:
        for ask in (lambda: server.service, lambda: server.broker):
            with pytest.raises(ValueError, match="the brokers of a cluster are other processes"):
                ask()
        addresses = server.bootstrap_servers.split(",")
        server.stop(1)
        with RawConnection(addresses[1]) as raw:
            assert [each.node_id for each in raw.call("metadata", 12, topics=[]).brokers] == [2]
        server.start(1)
        with RawConnection(addresses[0]) as raw:
            until(
                lambda: [each.node_id for each in raw.call("metadata", 12, topics=[]).brokers] == [1, 2],
                "the broker that is back to have seen the others",
            )
        folder = Path(server.data_dir)
    assert not folder.exists()


def test_a_server_that_stands_alone_has_no_other_brokers() -> None:
    with oncelog.Server() as server, pytest.raises(ValueError, match=r"stands alone has no other brokers"):
        server.kill(1)


# oncelog cluster start


COMMAND = ("cluster", "start", "--brokers", "2")


def test_the_command_prints_where_brokers_listen_and_ends_with_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started(folder, *COMMAND) as (process, line):
        brokers = children(process.pid)
        _, addresses = line.split("2 brokers listen on ")
        addresses, where = addresses.split(" and keep their data in ")
        assert where == f"{folder}\n"
        with RawConnection(addresses.split(",")[1]) as raw:
            until(
                lambda: [each.node_id for each in raw.call("metadata", 12, topics=[]).brokers] == [1, 2],
                "each broker to have seen the other",
            )
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0
        assert len(brokers) == 2
        assert not any(lives(each) for each in brokers)


def test_brokers_end_when_what_started_them_is_killed(tmp_path: Path) -> None:
    with started(tmp_path / "data", *COMMAND) as (process, line):
        assert line.startswith("2 brokers listen on ")
        brokers = children(process.pid)
        assert len(brokers) == 2
        process.kill()
        for each in brokers:
            await_end(each)


@pytest.mark.parametrize("brokers", [0, 6])
def test_a_cluster_has_one_to_five_brokers(brokers: int) -> None:
    with pytest.raises(SettingsError, match=f"{brokers} brokers: expected 1 to 5"):
        oncelog.Server(brokers=brokers)
