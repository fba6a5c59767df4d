"""A server in this process: `with Server() as server: ... server.bootstrap_servers`."""

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from types import NoneType
from typing import Any, Never, Self

from oncelog.arguments import as_number, check_kind, whole_number
from oncelog.clock import BoottimeClock, Clock, SystemClock
from oncelog.cluster.cluster_broker import ClusterBroker
from oncelog.cluster.file import FileCluster
from oncelog.cluster.parent import SCHEME, Parent, copies
from oncelog.cluster.stored_documents import change_in_tree
from oncelog.cluster.tree import Tree, in_session
from oncelog.cluster.tree_socket import SocketTree
from oncelog.cluster.worker import Worker
from oncelog.cluster.workers import SHARED, Workers
from oncelog.log.disk import RealDisk
from oncelog.security.documents import Change, Document, Kind
from oncelog.server.broker import Broker
from oncelog.server.endpoints import endpoints
from oncelog.server.listener import refuse_taken
from oncelog.server.running import Serving, is_started, run_loop
from oncelog.server.service import Service
from oncelog.server.settings import Settings
from oncelog.server.settings_reading import ZOOKEEPER, read_settings
from oncelog.settings import SettingsError, parse_address
from oncelog.waiting import result_of, until_ended, until_set

START_TIMEOUT_S = 60
CLUSTER = "oncelog.cluster"
OTHER_PROCESSES = "the brokers of a cluster are other processes: ask them by the Kafka protocol"
OF_ZOOKEEPER = ("zookeeper.", "oncelog.zookeeper.")  # settings of how it is reached
UNNAMED = 'oncelog.Server: give each argument by its name, such as data_dir="data", brokers=3 or num_partitions=3'


class Server:
    """Runs in a thread of its own, on a free port, in a temporary folder that goes with it unless `data_dir` is given.

    Settings are given by Kafka's names (`settings={"num.partitions": "3"}`) or as keywords (`num_partitions=3`).

    With `brokers=3` it is a cluster of three processes, numbered from 1, each of which may be killed, paused and
    started again; topics have three copies, and acks=all waits for two of them. There may be up to 5 brokers.

    With `settings={"oncelog.cluster": "zk://HOST:PORT/FOLDER"}` it is one more broker of those that agree there.

    With `workers=2` it is two processes that share one folder, each with some of the partitions, which may be killed,
    paused and started in the same way. There is one copy of everything; what it gives is more cores.

    With `secure=True` it listens with TLS and asks for a password; `client_config` is what a client needs.
    """

    def __init__(
        self,
        *unnamed: Never,
        brokers: int = 1,
        workers: int = 1,
        data_dir: str | os.PathLike[str] | None = None,
        secure: bool = False,
        settings: Mapping[str, str | int | float | bool] | None = None,
        **keywords: Any,
    ) -> None:
        _check(unnamed, data_dir=data_dir, secure=secure)
        brokers = whole_number("brokers", brokers, "a whole number, such as brokers=3")
        workers = whole_number("workers", workers, "a whole number, such as workers=3")
        given = _given(settings, keywords)
        if brokers != 1:
            given = copies(brokers) | given
        if secure:
            given["oncelog.secure"] = "true"
        is_secure = given.get("oncelog.secure", "").strip().lower() == "true"
        given.setdefault("listeners", f"{'SASL_SSL' if is_secure else 'PLAINTEXT'}://127.0.0.1:0")
        named = given.keys() & {"log.dir", "log.dirs"}
        if data_dir is not None and named:
            raise SettingsError(f"data_dir and {', '.join(sorted(named))} both name the data folder: give one of them")
        is_temporary = data_dir is None and not named
        self._temporary = tempfile.mkdtemp(prefix="oncelog-") if is_temporary else None
        if data_dir is None:
            data_dir = self._temporary
        if data_dir is not None:
            given.setdefault("log.dir", os.fspath(data_dir))
        self.bootstrap_servers = ""
        self._parent: Parent | None = None
        self._serving: Serving | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        try:
            # The settings of each; that none makes its own certificate among others is for their parent.
            self.settings = read_settings({name: given[name] for name in given if brokers == 1 or name != CLUSTER})
            self.data_dir = self.settings.log_dir
            if brokers != 1 and workers != 1:
                raise SettingsError("brokers and workers: each broker of a cluster is one process. Give one of them")
            if workers != 1 and self.settings.oncelog_cluster is not None:
                raise SettingsError(f"workers and {CLUSTER}: each broker of a cluster is one process. Give one of them")
            if brokers != 1:
                self._parent = open_cluster(self.data_dir, brokers, given, is_secure=is_secure)
            elif workers != 1:
                self._parent = Workers(self.settings, workers)
            if self._parent is not None:
                self._parent.start_all()
                self.bootstrap_servers = self._parent.bootstrap_servers
                return
            self._thread = threading.Thread(target=self._run, name="oncelog", daemon=True)
            self._start()
        except BaseException:
            self._remove_temporary()
            raise

    def _start(self) -> None:
        self._thread.start()
        if not until_set(self._started, START_TIMEOUT_S):
            self.close()
            where = self.settings.oncelog_cluster
            raise TimeoutError("the server did not start" + (f": does {where} answer?" if where else ""))
        if self._failure is not None:
            until_ended(self._thread)
            raise _in_words(self._failure, self.data_dir)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def broker(self) -> Broker:
        """The server itself; it belongs to its own thread (see `call`)."""
        return self.service.broker

    @property
    def service(self) -> Service:
        if self._serving is None:
            raise ValueError(OTHER_PROCESSES)
        service = self._serving.service if isinstance(self._serving, ClusterBroker) else self._serving
        assert isinstance(service, Service)
        return service

    @property
    def client_config(self) -> dict[str, str]:
        """The properties that a client needs, by librdkafka's names, which are also those of oncelog's client."""
        config = {"bootstrap.servers": self.bootstrap_servers}
        properties = getattr(self._parent or self._serving, "client_properties", {})
        return {**properties, **config}

    # Of a cluster

    def kill(self, broker: int) -> None:
        """End a broker as `kill -9` does."""
        self._brokers.kill(broker)

    def start(self, broker: int) -> None:
        """Start a broker again, after `kill` or `stop`, on its folder and its port. Returns when it is up."""
        self._brokers.start(broker)

    def stop(self, broker: int) -> None:
        """Stop a broker in an orderly way: it hands over what it leads first."""
        self._brokers.stop(broker)

    def pause(self, broker: int) -> None:
        """Silent until `resume`, as a machine that hangs."""
        self._brokers.pause(broker)

    def resume(self, broker: int) -> None:
        self._brokers.resume(broker)

    @property
    def _brokers(self) -> Parent:
        if self._parent is None:
            raise ValueError("a server that stands alone has no other brokers: Server(brokers=3)")
        return self._parent

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run a function in the server's thread, and wait for what it returns, or for what that waits for."""
        if self._loop is None:
            raise ValueError(OTHER_PROCESSES)

        async def run() -> Any:
            found = function(*arguments)
            return await found if isawaitable(found) else found

        return result_of(asyncio.run_coroutine_threadsafe(run(), self._loop))

    def close(self) -> None:
        if self._parent is not None:
            self._parent.close()
            self._remove_temporary()
            return
        if self._thread.is_alive() and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        until_ended(self._thread)
        failure, self._failure = self._failure, None
        self._remove_temporary()
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            run_loop(self._serve())
        except BaseException as failure:
            self._failure = failure
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        serving = self._serving = open_service(self.settings)
        try:
            if await is_started(serving, self._stop):
                self.bootstrap_servers = serving.broker.addresses()
                self._started.set()
                await self._stop.wait()
        finally:
            await serving.stop()


def open_broker(settings: Settings) -> Broker:
    """A server on its data folder, not listening yet. Raises `FolderInUse` when another one has the folder."""
    if settings.default_replication_factor > 1:
        raise SettingsError(
            f"default.replication.factor={settings.default_replication_factor}: a server that stands alone keeps one "
            "copy. For several: oncelog cluster start"
        )
    disk, clock = RealDisk(), SystemClock()
    first_steps = _first_steps() if settings.oncelog_secure else None  # refused before the folder is made
    cluster = FileCluster.open(
        disk,
        settings.log_dir,
        clock,
        node_id=settings.node_id,
        lease_lifetime_ms=settings.oncelog_lease_lifetime_ms,
    )
    try:
        if first_steps is not None:
            first_steps.make_certificates(settings, clock)
        return Broker(settings, cluster, clock=clock, disk=disk)
    except BaseException:
        cluster.close()
        raise


def open_alone(settings: Settings) -> Service:
    broker = open_broker(settings)
    return _first_steps().SecuredService(broker) if settings.oncelog_secure else Service(broker)


def open_cluster(
    folder: str, count: int, settings: Mapping[str, str], *, addresses: Sequence[str] = (), is_secure: bool = False
) -> Parent:
    """A cluster of brokers on this machine; not started yet. They agree in their parent, or where `oncelog.cluster`
    says."""
    where, tree = settings.get(CLUSTER), None
    if where is not None:
        own = {name: value for name, value in settings.items() if name.startswith(OF_ZOOKEEPER)}
        tree = _zookeeper(read_settings(own, environ=os.environ), where, BoottimeClock())
    if not is_secure:
        return Parent(folder, count, settings, addresses=addresses, tree=tree)
    _first_steps()
    from oncelog.first_steps.secured_cluster import SecuredParent

    return SecuredParent(folder, count, settings, addresses=addresses, tree=tree)


def _first_steps() -> Any:
    try:
        from oncelog.first_steps import secured
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "cryptography":
            raise
        raise SettingsError(
            "oncelog.secure makes certificates with cryptography, which is not installed: pip install 'oncelog[secure]'"
        ) from missing
    return secured


def open_service(settings: Settings, *, beside: Sequence[tuple[str, int]] = ()) -> Serving:
    """A server that stands alone, or a broker among others, where `oncelog.cluster` says so. `beside`: where else its
    process is about to listen."""
    if not RealDisk().exists(settings.log_dir):
        refuse_taken([*_addresses(settings), *beside])
    if settings.oncelog_cluster is None:
        return open_alone(settings)
    # A machine that sleeps while ZooKeeper's go on must not be sure of its session when it wakes up.
    clock = BoottimeClock() if settings.oncelog_cluster.startswith(ZOOKEEPER) else SystemClock()
    if settings.oncelog_cluster.startswith(SHARED):
        return Worker(settings, SocketTree(settings.oncelog_cluster.removeprefix(SHARED), clock), clock=clock)
    return ClusterBroker(settings, _tree(settings, settings.oncelog_cluster, clock), clock=clock)


def _addresses(settings: Settings) -> list[tuple[str, int]]:
    metrics = settings.oncelog_metrics_listener
    own = [] if metrics is None else [parse_address("oncelog.metrics.listener", metrics)]
    return [(each.host, each.port) for each in endpoints(settings)] + own


def _tree(settings: Settings, where: str, clock: Clock) -> Tree:
    if where.startswith(SCHEME):
        return SocketTree(where.removeprefix(SCHEME), clock)
    return _zookeeper(settings, where, clock)


def _zookeeper(settings: Settings, where: str, clock: Clock) -> Tree:
    if not where.startswith(ZOOKEEPER):
        raise SettingsError(f"oncelog.cluster={where}: expected {ZOOKEEPER}HOST:PORT,.../FOLDER")
    hosts, _, folder = where.removeprefix(ZOOKEEPER).partition("/")
    for host in hosts.split(","):
        parse_address("a server of oncelog.cluster", host.strip())
    try:
        from oncelog.cluster.tree_zookeeper import ZooKeeperTree
        from oncelog.cluster.zookeeper_security import ZooKeeperSecurity
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "kazoo":
            raise
        raise SettingsError(
            "oncelog.cluster names ZooKeeper, which needs kazoo: pip install 'oncelog[zookeeper]'"
        ) from missing
    security = ZooKeeperSecurity(
        is_encrypted=settings.zookeeper_ssl_client_enable,
        trusted_file=settings.zookeeper_ssl_truststore_location,
        own_file=settings.zookeeper_ssl_keystore_location,
        own_password=settings.zookeeper_ssl_keystore_password,
        checks_host=bool(settings.zookeeper_ssl_endpoint_identification_algorithm),
        user=settings.oncelog_zookeeper_username,
        password=settings.oncelog_zookeeper_password,
        is_private=settings.zookeeper_set_acl,
    )
    security.check()
    return ZooKeeperTree(hosts, f"/{folder or 'oncelog'}", clock, security=security)


def _in_words(failure: BaseException, folder: str) -> BaseException:
    """The failure as a sentence, where the folder is no folder, or another user's."""
    if isinstance(failure, OSError) and failure.filename == folder:
        why = (failure.strerror or "").lower()
        refusal = SettingsError(f"{folder} cannot be used ({why}): name a folder that this user may write to")
        refusal.__cause__ = failure
        return refusal
    return failure


def _check(unnamed: Sequence[object], *, data_dir: object, secure: object) -> None:
    if unnamed:
        raise TypeError(UNNAMED)
    check_kind("data_dir", data_dir, (str, os.PathLike, NoneType), "the path of a folder")
    check_kind("secure", secure, bool, "True or False")


def _given(settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, str]:
    """The texts that were meant."""
    settings = {} if settings is None else settings
    check_kind("settings", settings, Mapping, 'a mapping by Kafka\'s names, such as {"num.partitions": "3"}')
    for name in settings:
        check_kind("a name in settings", name, str, "a text, such as num.partitions")
    named = {name.replace("_", "."): value for name, value in keywords.items()}
    return {name: _text(name, value) for name, value in {**settings, **named}.items()}


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_text(name, each) for each in value)
    if as_number(value) is None:
        check_kind(name, value, (str, os.PathLike), "a text, a number, True, False, a path or a list")
    return str(value)


def change_users_at(where: str, change: Change) -> Document:
    """The users after the change. Of a cluster, whether its brokers are up or not. How to reach ZooKeeper the
    environment may say. Raises SettingsError, TreeError, and what `change` raises."""
    settings = read_settings({}, environ=os.environ)

    async def run() -> Document:
        tree = _tree(settings, where, SystemClock())
        async with in_session(tree, START_TIMEOUT_S):
            return await change_in_tree(tree, Kind.USERS, change)

    return run_loop(run())
