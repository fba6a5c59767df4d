"""The state that a server owns, and that its handlers ask. `service.py` makes it listen."""

import secrets
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

from oncelog.clock import Clock, Now, SystemClock
from oncelog.log.config import Flush
from oncelog.log.disk import Disk, RealDisk
from oncelog.producers import Ceilings, PidBinding, ProducerLimits, ProducerMap, of_transactional_id
from oncelog.security.failures import Failures
from oncelog.server.access import Access
from oncelog.server.aside import Aside
from oncelog.server.bodies import Bodies
from oncelog.server.endpoints import WILDCARDS, endpoints
from oncelog.server.fetch_sessions import FetchSessions
from oncelog.server.flusher import Flusher
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.housekeeping import Housekeeping
from oncelog.server.known_users import KnownUsers
from oncelog.server.local_topics import LocalTopics
from oncelog.server.memory import Memory
from oncelog.server.metrics import Metrics
from oncelog.server.partitions import registered
from oncelog.server.passwords import Passwords
from oncelog.server.pids import kafka_pids, leased_pids
from oncelog.server.polls import Looks
from oncelog.server.ports import NO_MEMBERS, Cluster, Member, NoPeers, Peers
from oncelog.server.quotas import Quotas
from oncelog.server.settings import Settings
from oncelog.server.tls import tls_of
from oncelog.server.tokens import TokensOfListeners
from oncelog.server.topics import Partition, Topics
from oncelog.server.transactions.coordinator import TransactionCoordinator
from oncelog.server.transactions.markers import Markers
from oncelog.server.transactions.verifying import Verifying
from oncelog.server.turns import Turns
from oncelog.settings import INT_MAX


class OpenTopics(Protocol):
    def __call__(
        self,
        settings: Settings,
        disk: Disk,
        new_producers: Callable[[], ProducerMap],
        now: Now,
        *,
        stayed_up: bool,
    ) -> Topics: ...


class Broker:
    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        open_topics: OpenTopics = LocalTopics,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.clock: Clock = clock or SystemClock()
        self.endpoints = endpoints(settings)
        self.tls = tls_of(self.endpoints, settings, self.clock)  # before anything large is read: it may be refused
        self.flush = Flush(settings.oncelog_flush)
        self.flusher = Flusher()
        self.bodies = Bodies(settings.oncelog_records_check)
        self._ceilings = Ceilings(
            settings.oncelog_max_producer_ring_entries, settings.oncelog_max_producer_kafka_entries
        )
        now, stayed_up = self.clock.now(), cluster.stayed_up
        disk = disk or RealDisk()
        self.topics = open_topics(settings, disk, self._new_producers, now, stayed_up=stayed_up)
        self._ceilings.belong_to(lambda: ((log.producers, log.next_offset) for log in self.topics.logs()))
        cluster.recovered()
        known_pid = max((log.producers.highest_kafka_number for log in self.topics.logs()), default=-1)
        self.metrics = Metrics()
        self.access = Access(settings, self.topics)
        self.quotas = Quotas(settings, self.topics, self.metrics)
        self.users = KnownUsers(self.topics)
        self.aside, self.at_disk = Aside("aside"), Aside("disk")
        self.proofs, self.at_tokens = Aside("proofs", is_yielding=True), Aside("tokens", is_yielding=True)
        self.passwords = Passwords(self.users, self.proofs)
        self.tokens = TokensOfListeners(settings, self.clock, self.at_tokens)
        self.failures = Failures(settings.oncelog_max_failed_authentications_per_minute)  # to prove it, by any way in
        self.leased_pids = leased_pids(cluster, self.clock, settings.oncelog_lease_lifetime_ms)
        self.kafka_pids = kafka_pids(cluster, self.clock, known_pid)
        self.turns = Turns(lambda: self.clock.now().monotonic_ms, self.at_disk.threads)
        self.looks = Looks(lambda: self.clock.now().monotonic_ms)
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots,
            settings.min_incremental_fetch_session_eviction_ms,
            lambda: secrets.randbelow(INT_MAX) + 1,
        )
        self.groups = GroupCoordinator(
            settings,
            self.topics,
            self.clock,
            request_flush=self.flusher.request,
            in_turns=self.turns.go_through,
            run=self.turns.run,
            broker_count=lambda: len(registered(cluster)),
        )
        self.peers: Peers = NoPeers()
        self.markers = Markers(
            self.topics,
            self.groups,
            lambda: self.peers,
            self.clock,
            request_flush=self.flusher.request,
            pause=self.turns.pause,
            in_turns=self.turns.go_through,
        )
        self.transactions = TransactionCoordinator(
            settings,
            self.topics,
            self.clock,
            self.markers,
            take_pid=lambda name: self.take_kafka_pid(of_transactional_id(name)),
            request_flush=self.flusher.request,
            in_turns=self.turns.go_through,
            run=self.turns.run,
            broker_count=lambda: len(registered(cluster)),
        )
        self.verifying = Verifying(self.transactions, lambda: self.peers, settings)
        self.housekeeping = Housekeeping(settings, self.topics, self.clock, disk, self.metrics, self.turns)
        self.memory = Memory(settings.queued_max_request_bytes)
        self.ports: Mapping[str, int] = {}  # by listener, once it listens

    @property
    def node_id(self) -> int:
        return self.cluster.node_id

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    def _new_producers(self) -> ProducerMap:
        settings = self.settings
        limits = ProducerLimits(
            lease_lifetime_ms=settings.oncelog_lease_lifetime_ms,
            lease_entries=settings.oncelog_producer_ring_entries,
            kafka_expiration_ms=settings.producer_id_expiration_ms,
            kafka_entries=settings.oncelog_producer_kafka_entries,
        )
        return ProducerMap(self.cluster, limits, self._ceilings)

    @cached_property
    def pid_binding(self) -> PidBinding | None:
        """None where pids are anybody's. Asked once the brokers have agreed on their secret."""
        return PidBinding(self.cluster.pid_secret) if self.settings.oncelog_bind_pids else None

    def may_use_pid(self, pid: int, owner: str) -> bool:
        return self.pid_binding is None or self.pid_binding.may_use(pid, owner)

    async def take_kafka_pid(self, owner: str) -> int:
        """A new pid, granted once. Raises ClusterStorageError."""
        number = await self.kafka_pids.take()
        return number if self.pid_binding is None else self.pid_binding.bound(number, owner)

    def listens(self, ports: Mapping[str, int]) -> None:
        self.ports = ports

    def advertised(self, listener: str, local_host: str) -> tuple[str, int]:
        """The address that a client shall connect to: what its listener advertises, or the one by which it reached
        us."""
        endpoint = next(each for each in self.endpoints if each.name == listener)
        host = endpoint.advertised_host or local_host
        return host, endpoint.advertised_port or self.ports[endpoint.name]

    def is_sure(self, partition: Partition, now: Now) -> bool:
        """Whether it surely leads: a batch that another leader has appended since would be refused here as out of
        order."""
        return partition.replica is None or now.monotonic_ms < self.cluster.sure_until_ms()

    def brokers(
        self, listener: str, local_host: str, *, also: Mapping[int, Member] = NO_MEMBERS
    ) -> list[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of each that is up, for a client that came in by that listener."""
        here = self.advertised(listener, local_host)
        members = {**also, **self.cluster.members}
        return [
            (node_id, *(here if node_id == self.node_id else member.endpoints[listener]), member.rack)
            for node_id, member in members.items()
            if node_id == self.node_id or listener in member.endpoints
        ]

    @property
    def own_names(self) -> frozenset[str]:
        """The names by which browsers and scrapers may ask, beside addresses."""
        named = (*self.settings.oncelog_page_hosts, *(each.advertised_host or "" for each in self.endpoints))
        return frozenset(each.casefold() for each in named if each)

    def addresses(self) -> str:
        """The addresses that clients can connect to, as bootstrap.servers wants it."""
        return ",".join(
            f"{bracketed(each.advertised_host or '127.0.0.1')}:{each.advertised_port or self.ports[each.name]}"
            for each in self.endpoints
        )

    def bound_addresses(self) -> str:
        """The addresses that it listens on, and how to get there from here where that is not the same. For people."""
        bound = ",".join(f"{bracketed(each.host) or '*'}:{self.ports[each.name]}" for each in self.endpoints)
        if any(each.host in WILDCARDS for each in self.endpoints):
            return f"{bound} (every interface; clients connect to {self.addresses()})"
        return bound if bound == self.addresses() else f"{bound} (clients connect to {self.addresses()})"

    async def look_at_certificates(self) -> None:
        """Whether the files of TLS have changed. For new connections the new ones count then."""
        for tls in self.tls.values():
            await self.aside.run(tls.look)

    async def close(self) -> None:
        """Nobody asks any more: put everything on the disk."""
        await self.housekeeping.stop()
        await self.flusher.close()
        self.aside.close()
        self.at_disk.close()
        self.proofs.close()
        self.at_tokens.close()
        try:
            self.topics.close()
        finally:
            self.cluster.close()


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
