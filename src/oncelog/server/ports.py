"""The rooms above the server, as it needs them. They implement it; the server never imports them."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from oncelog.producers.grants import Grants
from oncelog.producers.leases import Block


class PidKind(StrEnum):
    LEASED = "leased"  # 1 ... 2^32 - 1, then again from 1
    KAFKA = "kafka"  # from 2^32 on


class Member(NamedTuple):
    """A broker that is up, as the others know it."""

    endpoints: Mapping[str, tuple[str, int]]  # by the name of the listener: where clients connect to
    rack: str | None = None


NO_MEMBERS: Final[Mapping[int, Member]] = {}


class Cluster(Grants, Protocol):
    """A server's place among its peers, and what only one of them may do. Every broker knows by when a leased pid was
    granted (`may_be_new`), by whichever of them."""

    @property
    def cluster_id(self) -> str:
        """22 characters of URL-safe base64 as Kafka's; the same for ever."""
        ...

    @property
    def node_id(self) -> int: ...

    @property
    def members(self) -> Mapping[int, Member]:
        """The members, by their node ids, this server among them."""
        ...

    @property
    def away(self) -> Mapping[int, Member]:
        """The members that are to lead nothing: brokers that are down, and brokers that are about to be."""
        ...

    @property
    def lost(self) -> Mapping[int, Member]:
        """The members that were up some seconds ago, and did not say that they would end."""
        ...

    async def until_nobody_is_missed(self) -> None:
        """Returns once nobody is missed whose place others are about to take; soon in any case."""
        ...

    async def forget(self, node_id: int) -> None:
        """A broker that is down, and has nothing. Returns when this server sees it so. Raises KafkaError."""
        ...

    @property
    def secret(self) -> str:
        """The secret by which brokers know each other; empty where there is one."""
        ...

    @property
    def pid_secret(self) -> str:
        """The secret by which a pid is known to be somebody's; the same for ever, and for all brokers, once they have
        agreed."""
        ...

    @property
    def start_epoch(self) -> int:
        """Greater at every start of any server of this data; durable before the first request is served."""
        ...

    @property
    def stayed_up(self) -> bool:
        """The machine has run on since this data was last served: what was written is there, flushed or not."""
        ...

    def recovered(self) -> None:
        """Every log was opened, so the next start need not know of an earlier stop of the machine."""
        ...

    def sure_until_ms(self) -> int:
        """The time, on the monotonic clock, until which nobody else can have been elected in the place of this
        broker."""
        ...

    async def reserve_pids(self, kind: PidKind, count: int) -> Block:
        """`count` pids in a row that nobody else has got or will get. Durable when it returns, which takes its time.

        Raises `ClusterStorageError` when that cannot be promised; nothing is reserved then, or nobody will get it.
        """
        ...

    def close(self) -> None:
        """Let another server have the data. Nothing is reserved from here on."""
        ...


class ClusterStorageError(Exception):
    """The cluster's own state cannot be written. Retriable: a later attempt may work."""


class Peers(Protocol):
    """The other brokers, as those that one can ask."""

    async def ask(self, node_id: int, name: str, version: int, request: Callable[[Callable[..., Any]], Any]) -> Any:
        """The answer to a request, which is made by what makes its structs. Raises OSError and MalformedFrame."""
        ...


class NoPeers:
    """The peers of a server that stands alone: none."""

    async def ask(self, node_id: int, name: str, version: int, request: Callable[[Callable[..., Any]], Any]) -> Any:
        raise ConnectionError(f"broker {node_id} is not known here")
