"""A proxy on the loopback that knows frames, and does to them what a schedule says. It never reorders.

    with FaultProxy(server.bootstrap_servers, seeded_schedule(7, every=50, until=10_000)) as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers})
        ...
    proxy.happened  # beside proxy.planned

Every broker that an answer names gets a port of its own here, and the answer names that port instead, so clients stay
behind the proxy. Connections to it are not encrypted, and come from this machine alone; SASL passes through. Where the
brokers want TLS, `tls` is what the proxy speaks it by, and it checks the certificate of each as a client would.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from oncelog.chaos.faults import Direction, Fault, Hit, Kind, Plan, Sides
from oncelog.chaos.link import READ_AHEAD_BYTES, Link, Stream, reset
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.net.tls import tls_failure
from oncelog.client.properties.addresses import parse_servers
from oncelog.clock import Clock, SystemClock

T = TypeVar("T")

HOST = "127.0.0.1"
CONNECT_TIMEOUT_S = 10
CLOSE_TIMEOUT_S = 10

Address = tuple[str, int]


class Happened(NamedTuple):
    """A fault as it came about."""

    number: int  # of the planned fault; -1 where it was injected
    fault: Fault
    counts: dict[str, int]  # what had been counted by then
    connection: int  # by the order in which they came; -1 for none
    server: Address
    api: str
    passed_bytes: int
    in_flight: int  # Produce requests of that connection whose answers the client had not got
    seconds: float  # since the proxy began

    @property
    def hit_work(self) -> bool:
        """Whether it could have cost or doubled a record."""
        return self.in_flight > 0


class FaultProxy:
    """Begins with `start` or `with`; `upstream` is what a client would have as `bootstrap.servers`."""

    def __init__(
        self,
        upstream: str,
        schedule: Iterable[Fault] = (),
        *,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.plan = Plan(schedule)
        self._tls = tls
        self._clock: Clock = clock or SystemClock()
        self.happened: list[Happened] = []
        self.unreadable: list[
            str
        ] = []  # answers that cannot be passed on without leading around the proxy, refused TLS
        self._upstream = parse_servers(upstream)
        self._thread: LoopThread | None = None
        self._servers: dict[Address, asyncio.Server] = {}
        self._ports: dict[Address, int] = {}
        self._listening = asyncio.Lock()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._refuse_next = 0
        self._refuse_until_ms = 0
        self._is_refusing = False
        self._began_ms = 0

    # --- its life, from any thread

    def start(self) -> None:
        self._began_ms = self._now_ms()
        self._thread = LoopThread("oncelog-proxy")
        try:
            self._thread.run(self._listen_for_all())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends every connection and listener; nothing of it is left when this returns."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._close(), timeout_s=CLOSE_TIMEOUT_S)
            finally:
                thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def in_flight(self) -> int:
        """Produce requests whose answers the client has not got, just now."""
        return sum(link.in_flight for link in list(self._links))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{self._ports[address]}" for address in self._upstream)

    @property
    def planned(self) -> tuple[Fault, ...]:
        return self.plan.faults

    @property
    def open_connections(self) -> int:
        return len(self._links)

    # --- what the experiment may ask for, from any thread

    def count(self, counter: str, by: int = 1) -> None:
        """Count something of one's own, such as confirmed messages, so that faults can be keyed to it."""
        self._soon(self.plan.count, counter, by)

    def inject(self, fault: Fault) -> None:
        """Hit the next frame that fits, or the next connection, whatever the schedule says: one that is sent after this
        returns, also on a connection that begins just now."""
        self._now(self._inject(fault))

    def cut_all(self) -> int:
        """End every connection now; how many there were."""
        return self._now(self._cut_all())

    def refuse(self, is_refusing: bool = True) -> None:
        """Let no new connection in, until it is called with False."""
        self._now(self._set_refusing(is_refusing))

    def _soon(self, function: Callable[..., object], *arguments: Any) -> None:
        assert self._thread is not None
        self._thread.call_soon(function, *arguments)

    def _now(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._thread is not None
        return self._thread.run(coroutine)

    async def _inject(self, fault: Fault) -> None:
        self.plan.inject(fault)

    async def _cut_all(self) -> int:
        links = list(self._links)
        for link in links:
            link.cut(Sides.BOTH, is_reset=True)
        return len(links)

    async def _set_refusing(self, is_refusing: bool) -> None:
        self._is_refusing = is_refusing

    # --- listening

    async def _listen_for_all(self) -> None:
        for host, port in self._upstream:
            await self.behind(host, port)

    async def behind(self, host: str, port: int) -> Address:
        """The address of this proxy for a server; a new server gets a new port."""
        address = (host, port)
        async with self._listening:
            if address not in self._ports:
                server = await asyncio.start_server(
                    lambda reader, writer: self._accept(address, reader, writer), HOST, 0, limit=READ_AHEAD_BYTES
                )
                self._servers[address] = server
                self._ports[address] = server.sockets[0].getsockname()[1]
        return HOST, self._ports[address]

    async def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        await self._cut_all()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(address, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self._connections
        self._connections += 1
        hit = self.plan.connection()
        if hit is not None:
            self._begin_refusing(hit.fault)
            self.record(hit, number, address, "connection", 0)
        if self._refuses():
            reset(writer)
            return
        up = await self._up(address)
        if up is None:
            reset(writer)
            return
        link = Link(self, number, address, (reader, writer), up)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _up(self, address: Address) -> Stream | None:
        host, port = address
        name = None if self._tls is None else host
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await asyncio.open_connection(
                    host, port, limit=READ_AHEAD_BYTES, ssl=self._tls, server_hostname=name
                )
        except ssl.SSLError as error:  # first: it is an OSError as well
            words = tls_failure(f"{host}:{port}", error).error.str()
            if words not in self.unreadable:  # clients try again and again
                self.unreadable.append(words)
        except (OSError, TimeoutError):
            pass  # the client learns that nobody is there
        return None

    def _begin_refusing(self, fault: Fault) -> None:
        if fault.ms:
            self._refuse_until_ms = self._now_ms() + fault.ms
        else:
            self._refuse_next += fault.connections

    def _refuses(self) -> bool:
        if self._refuse_next:
            self._refuse_next -= 1
            return True
        return self._is_refusing or self._now_ms() < self._refuse_until_ms

    # --- what links ask

    def _now_ms(self) -> int:
        return self._clock.now().monotonic_ms

    def record(self, hit: Hit, connection: int, server: Address, api: str, in_flight: int) -> None:
        seconds = (self._now_ms() - self._began_ms) / 1000
        counts = dict(self.plan.counts)
        self.happened.append(
            Happened(hit.number, hit.fault, counts, connection, server, api, hit.passed_bytes, in_flight, seconds)
        )

    def frame(self, link: Link, direction: Direction, api: str, size_bytes: int) -> Hit | None:
        hit = self.plan.frame(direction, api, size_bytes)
        if hit is not None:
            self.record(hit, link.number, link.server, api, link.in_flight)
            if hit.fault.kind is Kind.REFUSE:
                self._begin_refusing(hit.fault)
            if hit.fault.kind is Kind.CUT and hit.fault.is_everywhere:
                for other in self._links - {link}:
                    other.cut(hit.fault.sides, is_reset=hit.fault.is_reset)
        return hit
