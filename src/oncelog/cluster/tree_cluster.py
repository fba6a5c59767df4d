"""This broker among the others, as the tree shows them: who is up, in which epoch, and which pids were taken."""

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Iterable
from typing import Any, Protocol

from oncelog.clock import Clock, Now
from oncelog.cluster.documents import (
    CONFIG,
    GONE,
    LIVE,
    NODES,
    DamagedTree,
    NodeDocument,
    decode_node,
    encode_node,
    forget_gone,
)
from oncelog.cluster.file import UnfitFolder
from oncelog.cluster.tree import ABSENT, Node, Outdated, Put, PutEphemeral, Remove, Tree, TreeError
from oncelog.cluster.tree_pids import TreePids
from oncelog.producers.leases import Block, GrantHistory
from oncelog.replication.leadership import Peer
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.ports import ClusterStorageError, Member, PidKind

logger = logging.getLogger(__name__)

SECRET_BYTES = 32
SEEN_S = 0.005  # after a client whose leader is gone, a broker has seen that, too
MISSED_S = 0.25  # an election takes some hundredths of a second
LISTED_MS = 10_000  # about as long as Kafka lists a broker that was killed
TRIES = 20  # of a change that others were faster with, each time


class Own(Protocol):
    """A data folder: who this broker is, and what was written there before."""

    cluster_id: str
    node_id: int
    start_epoch: int
    stayed_up: bool
    lacks_records: bool
    folder_id: str
    pid_secret: str  # empty where brokers agree on one

    @property
    def holds_partitions(self) -> bool: ...

    @property
    def earlier_pids(self) -> GrantHistory:
        """The grants of pids and their times, as far as this broker may go by them."""
        ...

    def join(self, cluster_id: str) -> None: ...

    def note_lack(self) -> None: ...

    def recovered(self) -> None: ...

    def close(self) -> None: ...


class TreeCluster:
    def __init__(
        self, own: Own, tree: Tree, clock: Clock, lease_lifetime_ms: int, *, is_folder_lost: bool = False
    ) -> None:
        """`is_folder_lost`: the one that this broker had before is gone."""
        self._is_folder_lost = is_folder_lost
        self.own = own
        self.tree = tree
        self._clock = clock
        self._lifetime_ms = lease_lifetime_ms
        self.pids = TreePids(tree, clock, own.earlier_pids)
        self.cluster_id = own.cluster_id
        self.node_id = own.node_id
        self.start_epoch = own.start_epoch
        self.stayed_up = own.stayed_up
        self.peers: dict[int, Peer] = {}
        self.members: dict[int, Member] = {}
        self.away: dict[int, Member] = {}
        self._lost_ms: dict[int, int] = {}  # when those that are not up were found missing
        self._missed: dict[int, asyncio.TimerHandle] = {}
        self._all_are_there = asyncio.Event()
        self._all_are_there.set()
        self._document: NodeDocument | None = None
        self.secret = ""  # by which brokers know each other

    @property
    def pid_secret(self) -> str:
        """A secret for pids. It is made of the brokers' secret, and used as a key for nothing else."""
        return self.secret

    # Among others

    async def agree(self) -> None:
        """Agree on what is the same for all brokers. Raises UnfitFolder where this one's is another."""
        mine: dict[str, Any] = {
            "cluster_id": self.own.cluster_id,
            "oncelog.lease.lifetime.ms": self._lifetime_ms,
            "secret": self.own.pid_secret or secrets.token_urlsafe(SECRET_BYTES),
        }
        node = await self.tree.get(CONFIG)
        if node is None:
            if self.own.holds_partitions:
                raise UnfitFolder(
                    "what the brokers had agreed on is gone, and with it which topics this folder's records belong to. "
                    "Restore that (the folder `tree`, or ZooKeeper's), or use empty folders"
                )
            try:
                await self.tree.change(Put(CONFIG, _config(mine), ABSENT))
                self.secret = mine["secret"]
                return
            except Outdated:
                node = await self.tree.get(CONFIG)
        found = json.loads(node.value) if node is not None else mine
        if found["oncelog.lease.lifetime.ms"] != self._lifetime_ms:
            raise UnfitFolder(
                f"oncelog.lease.lifetime.ms={self._lifetime_ms} here, and {found['oncelog.lease.lifetime.ms']} at the "
                "other brokers: leases would be forgotten while they last. Set the same for all of them"
            )
        if found["cluster_id"] != self.own.cluster_id:
            self.own.join(found["cluster_id"])
        self.cluster_id = found["cluster_id"]
        self.secret = found.get("secret") or await self._share(mine["secret"])

    async def _share(self, secret: str) -> str:
        """Write the secret into the document of brokers of a version that had none; returns the one that counts."""
        for _ in range(TRIES):
            node = await self.tree.get(CONFIG)
            found = {} if node is None else json.loads(node.value)
            if node is None or found.get("secret"):
                return str(found.get("secret", secret))
            try:
                await self.tree.change(Put(CONFIG, _config({**found, "secret": secret}), node.version))
                return secret
            except Outdated:
                continue
        raise ClusterStorageError("the brokers could not agree on their secret: others changed it all the while")

    async def join(self, document: NodeDocument) -> None:
        """Join: from here on this broker is up, in a new epoch."""
        path, live = f"{NODES}/{self.node_id}", f"{LIVE}/{self.node_id}"
        alive = PutEphemeral(live, str(os.getpid()).encode())
        self._document = document
        for _ in range(TRIES):
            node, earlier = await self.tree.get(path), await self.tree.get(live)
            self._check_folder(node, document)
            leave = () if earlier is None else (Remove(live, earlier.version),)
            version = ABSENT if node is None else node.version
            try:
                await self.tree.change(Put(path, encode_node(document), version), *leave, alive)
            except Outdated:
                continue
            await self.look_at_brokers()
            return
        raise ClusterStorageError("this broker could not be announced to the others: they changed its node meanwhile")

    def _check_folder(self, node: Node | None, document: NodeDocument) -> None:
        folder = document.folder if node is None else decode_node(node.value).folder
        if folder != document.folder and not self._is_folder_lost:
            raise UnfitFolder(
                f"node {self.node_id} of this cluster has another data folder. Give this one another node.id; or, if "
                "that one is lost for good, start this one with oncelog.cluster.folder.lost=true: then it counts as "
                "lacking everything, and copies it from the others"
            )

    async def join_again(self) -> None:
        """Join in another session, as before."""
        if self._document is not None:
            await self.join(self._document)

    async def say_stopping(self) -> None:
        if self._document is not None:
            self._document = self._document._replace(is_stopping=True)
            peer = self.peers[self.node_id]
            await self.tree.change(Put(f"{NODES}/{self.node_id}", encode_node(self._document), peer.epoch))
            await self.look_at_brokers()

    async def look_at_brokers(self) -> None:
        nodes = await self.tree.children(NODES)
        live = await self.tree.children(LIVE)
        before, now_ms = self.members, self._clock.now().monotonic_ms
        self.peers, self.members, self.away = {}, {}, {}
        for name, node in nodes.items():
            try:
                document = decode_node(node.value)
            except DamagedTree as damage:
                logger.error("%s/%s is passed over: %s", NODES, name, damage)
                continue
            self.peers[int(name)] = Peer(node.version, name in live, document.is_stopping)
            if name in live:
                self.members[int(name)] = document.member
            if name not in live or document.is_stopping:
                self.away[int(name)] = document.member
        missing = (node_id for node_id in before.keys() - self.members.keys() if not self._is_stopping(node_id))
        self._lost_ms |= dict.fromkeys(missing, now_ms)

    def _is_stopping(self, node_id: int) -> bool:
        peer = self.peers.get(node_id)
        return peer is None or peer.is_stopping

    @property
    def lost(self) -> dict[int, Member]:
        now_ms = self._clock.now().monotonic_ms
        recent = [node_id for node_id, lost_ms in self._lost_ms.items() if now_ms < lost_ms + LISTED_MS]
        return {node_id: self.away[node_id] for node_id in recent if node_id in self.away}

    def miss(self, node_id: int) -> None:
        """A connection to it has ended: it may be gone, and others about to lead in its place."""
        if node_id in self.members and node_id not in self._missed:
            loop = asyncio.get_running_loop()
            self._missed[node_id] = loop.call_later(MISSED_S, self._miss_no_more, node_id)
            self._all_are_there.clear()

    def miss_only(self, leaders: Iterable[int]) -> None:
        """Miss these leaders alone: a broker that leads nothing is not waited for."""
        for node_id in self._missed.keys() - set(leaders) if self._missed else ():
            self._miss_no_more(node_id)

    def _miss_no_more(self, node_id: int) -> None:
        self._missed.pop(node_id).cancel()
        if not self._missed:
            self._all_are_there.set()

    async def until_nobody_is_missed(self) -> None:
        await asyncio.sleep(SEEN_S)
        await self._all_are_there.wait()

    async def forget(self, node_id: int) -> None:
        """Forget a broker, unless it has been started meanwhile, which gives its node another version."""
        path = f"{NODES}/{node_id}"
        try:
            node, live = await self.tree.get(path), await self.tree.get(f"{LIVE}/{node_id}")
            if live is not None:
                raise KafkaError(ErrorCode.invalid_request, f"Broker {node_id} is up: stop it first.")
            if node is not None:
                await self.tree.change(Remove(path, node.version))
            await self.look_at_brokers()
        except TreeError as error:
            raise KafkaError(ErrorCode.request_timed_out, f"the brokers could not agree on it: {error}") from error

    async def forget_gone(self) -> None:
        """Forget deleted topics, those that were deleted first."""
        removals = forget_gone(await self.tree.children(GONE))
        if removals:
            await self.tree.change(*removals)

    def sure_until_ms(self) -> int:
        return self.tree.sure_until_ms()

    # Pids

    def may_be_new(self, pid: int, now: Now) -> bool:
        return self.pids.may_be_new(pid, now)

    async def reserve_pids(self, kind: PidKind, count: int) -> Block:
        return await self.pids.reserve_pids(kind, count)

    # The folder

    def recovered(self) -> None:
        """Not yet: what this broker may have lost it says to the others first. See `Supervisor`."""

    def close(self) -> None:
        self.own.close()


def _config(found: dict[str, Any]) -> bytes:
    return json.dumps(found, sort_keys=True).encode()
