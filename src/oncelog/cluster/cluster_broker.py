"""One broker of a cluster, from its data folder to its port."""

from oncelog.clock import Clock, SystemClock
from oncelog.cluster.cluster_topics import ClusterTopics
from oncelog.cluster.documents import NodeDocument
from oncelog.cluster.fetcher import Fetcher
from oncelog.cluster.file import FileCluster
from oncelog.cluster.links import Links
from oncelog.cluster.peer_connections import PeerConnections
from oncelog.cluster.supervisor import Supervisor
from oncelog.cluster.tree import Tree
from oncelog.cluster.tree_cluster import Own, TreeCluster
from oncelog.log.config import Flush
from oncelog.log.disk import Disk, RealDisk
from oncelog.server.broker import Broker
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from oncelog.server.ports import Member
from oncelog.server.service import Service
from oncelog.server.settings import Settings
from oncelog.server.topic import Partition
from oncelog.server.transactions.coordinator import TransactionCoordinator


class ClusterBroker:
    TOPICS: type[ClusterTopics] = ClusterTopics
    SUPERVISOR: type[Supervisor] = Supervisor

    def __init__(self, settings: Settings, tree: Tree, *, clock: Clock | None = None) -> None:
        """Raises `FolderInUse` when another one has the folder."""
        disk, clock = RealDisk(), clock or SystemClock()
        self._links = Links(settings, lambda: self._cluster.secret)
        self._own = own = self._open_own(settings, disk, clock)
        try:
            if settings.oncelog_cluster_folder_lost:
                own.note_lack()
            self._cluster = TreeCluster(
                own,
                tree,
                clock,
                settings.oncelog_lease_lifetime_ms,
                is_folder_lost=settings.oncelog_cluster_folder_lost,
            )
            self.broker = Broker(settings, self._cluster, clock=clock, disk=disk, open_topics=self.TOPICS)
        except BaseException:
            own.close()
            raise
        assert isinstance(self.broker.topics, ClusterTopics)
        self.service = Service(self.broker)
        self._fetchers: dict[int, Fetcher] = {}
        self._asking = PeerConnections(self._address, self._links)
        self.broker.peers = self._asking
        self.supervisor = self.SUPERVISOR(
            self._cluster,
            self.broker.topics,
            settings,
            clock,
            follow=self._fetcher,
            led=self._led,
            gone=self._gone,
            dropped=self._remove_deleted,
            is_clean=not own.lacks_records and (own.stayed_up or self.broker.flush is Flush.EVERY),
            turns=self.broker.turns,
        )

    def _open_own(self, settings: Settings, disk: Disk, clock: Clock) -> Own:
        return FileCluster.open(
            disk,
            settings.log_dir,
            clock,
            node_id=settings.node_id,
            lease_lifetime_ms=settings.oncelog_lease_lifetime_ms,
            is_member=True,
        )

    @property
    def metrics_port(self) -> int | None:
        return self.service.metrics_port

    async def start(self) -> None:
        await self.supervisor.load()
        await self.service.start()
        await self.supervisor.start(NodeDocument(self._own.folder_id, self._member()))

    async def stop(self) -> None:
        await self.supervisor.stop()
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        self._asking.close()
        await self.service.stop()

    def _member(self) -> Member:
        broker = self.broker
        listeners = {each.name: broker.advertised(each.name, each.host or "127.0.0.1") for each in broker.endpoints}
        return Member(listeners, broker.settings.broker_rack)

    def _fetcher(self, leader: int) -> Fetcher:
        if leader not in self._fetchers:
            self._fetchers[leader] = Fetcher(
                self.broker,
                leader,
                lambda: self._address(leader),
                self.supervisor.suspect,
                self._cluster.miss,
                lambda: self._cluster.peers[self._own.node_id].epoch,
                self._links,
            )
            self._fetchers[leader].start()
        return self._fetchers[leader]

    def _address(self, leader: int) -> tuple[str, int] | None:
        member = self._cluster.members.get(leader)
        return None if member is None else self._links.address(member)

    def _gone(self, topic: str) -> None:
        """Forget the offsets of a topic that is gone: they would be wrong for the next one of its name."""
        broker = self.broker
        broker.turns.go_through(broker.groups.forgetting(topic, broker.clock.now()))
        self._remove_deleted()

    def _remove_deleted(self) -> None:
        self.broker.at_disk.threads.submit(self.broker.topics.remove_deleted)

    def _led(self, partition: Partition, is_led: bool) -> None:
        self.broker.metrics.elections += is_led
        if is_led and self.broker.flush is Flush.EVERY:
            self.broker.flusher.request(partition)
        kept_by: dict[str, GroupCoordinator | TransactionCoordinator] = {
            OFFSETS_TOPIC: self.broker.groups,
            TRANSACTIONS_TOPIC: self.broker.transactions,
        }
        coordinator = kept_by.get(partition.topic.name)
        if coordinator is not None:
            epoch = partition.log.leader_epoch
            (coordinator.elected if is_led else coordinator.resigned)(partition, epoch)
