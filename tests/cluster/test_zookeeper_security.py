"""A ZooKeeper that speaks TLS and wants certificates, and nodes that belong to the brokers' user alone."""

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from oncelog.chaos.life import free_ports
from oncelog.clock import BoottimeClock
from oncelog.cluster.tree import ABSENT, Node, Put, Refused
from oncelog.cluster.tree_zookeeper import ZooKeeperTree
from oncelog.cluster.zookeeper_security import OPEN, ZooKeeperSecurity
from oncelog.embedded import open_service
from oncelog.server.settings_reading import read_settings
from oncelog.settings import SettingsError
from tests.client.net.certificates import Authority
from tests.cluster.zookeeper import ZooKeeper, running_zookeeper

PASSWORD = "not to be seen"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ZooKeeper, int, ZooKeeperSecurity]]:
    """With a port for TLS beside the open one."""
    running_zookeeper()  # says what is missing
    folder = tmp_path_factory.mktemp("zookeeper")
    authority = Authority(folder)
    for name in ("server", "broker"):
        made = authority.signs(name)
        (folder / f"{name}.both.pem").write_text(Path(made.key).read_text() + Path(made.certificate).read_text())
    (port,) = free_ports(1)
    server = ZooKeeper(
        folder,
        f"secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={folder}/server.both.pem\nssl.keyStore.type=PEM\n"
        f"ssl.trustStore.location={authority.certificate}\nssl.trustStore.type=PEM\n",
    )
    server.start()
    security = ZooKeeperSecurity(
        is_encrypted=True,
        trusted_file=authority.certificate,
        own_file=str(folder / "broker.both.pem"),
        user="brokers",
        password=PASSWORD,
        is_private=True,
    )
    yield server, port, security
    server.kill()


@pytest.mark.peers
async def test_brokers_agree_over_tls_on_what_nobody_else_may_read(
    secured: tuple[ZooKeeper, int, ZooKeeperSecurity],
) -> None:
    server, port, security = secured
    security.check()
    tree = ZooKeeperTree(f"127.0.0.1:{port}", "/secured", BoottimeClock(), security=security)
    await tree.begin_session()
    await tree.change(Put("/users", b"secret", ABSENT), Put("/topics/orders", b"", ABSENT))
    assert await tree.get("/users") == Node(b"secret", 0)
    assert list(await tree.children("/topics")) == ["orders"]
    await tree.close()
    other = KazooClient(f"127.0.0.1:{server.port}")
    other.start()
    for path in ("/secured/users", "/secured/topics/orders"):
        with pytest.raises(NoAuthError):
            other.get(path)
    with pytest.raises(NoAuthError):
        other.create("/secured/topics/mine", b"")
    other.stop()
    other.close()


GIVEN = {"oncelog.cluster": "zk://127.0.0.1:1/x"}
REFUSED = {
    "nobody": ({"zookeeper.set.acl": "true"}, "name it with oncelog.zookeeper.username"),
    "no password": ({"oncelog.zookeeper.username": "me"}, "give both, or neither"),
    "colon": (
        {"oncelog.zookeeper.username": "a:b", "oncelog.zookeeper.password": PASSWORD},
        "a name without a colon",
    ),
    "plain": ({"zookeeper.ssl.truststore.location": __file__}, "says nothing without zookeeper.ssl.client.enable=true"),
    "not there": (
        {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "/no/such.pem"},
        "cannot be read",
    ),
    "no certificate": (
        {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": __file__},
        "the certificates cannot be used",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_stops_the_start(name: str, tmp_path: Path) -> None:
    given, said = REFUSED[name]
    with pytest.raises(SettingsError, match=said) as refusal:
        open_service(read_settings({**GIVEN, "log.dir": str(tmp_path), **given}))
    assert PASSWORD not in str(refusal.value)


def test_a_password_is_not_shown() -> None:
    assert PASSWORD not in repr(replace(OPEN, user="me", password=PASSWORD, own_password=PASSWORD))


@pytest.mark.peers
async def test_who_may_not_read_what_brokers_agreed_on_is_told_so_and_a_folder_that_is_there_is_enough() -> None:
    where = f"127.0.0.1:{running_zookeeper().port}"
    admin = KazooClient(where, auth_data=[("digest", "admin:a")])
    admin.start()
    top = f"/{uuid.uuid4()}"
    admin.create(top, acl=[make_digest_acl("admin", "a", all=True)])
    admin.create(f"{top}/brokers", acl=[make_digest_acl("brokers", PASSWORD, all=True)])
    admin.stop()
    admin.close()
    allowed = replace(OPEN, user="brokers", password=PASSWORD)
    tree = ZooKeeperTree(where, f"{top}/brokers", BoottimeClock(), security=allowed)
    await tree.begin_session()
    assert await tree.children("/topics") == {}
    await tree.close()
    other = ZooKeeperTree(where, f"{top}/brokers", BoottimeClock(), security=replace(allowed, password="wrong"))
    with pytest.raises(Refused, match="ZooKeeper does not let this user") as refusal:
        async with asyncio.timeout(30):
            await other.begin_session()
    assert "wrong" not in str(refusal.value)
    await other.close()
