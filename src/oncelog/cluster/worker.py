"""One of several workers that share a data folder, from that folder to its port."""

from oncelog.clock import Clock
from oncelog.cluster.cluster_broker import ClusterBroker
from oncelog.cluster.shared_folder import FolderOfParent
from oncelog.cluster.tree import Tree
from oncelog.cluster.tree_cluster import Own
from oncelog.cluster.worker_supervisor import WorkerSupervisor
from oncelog.cluster.worker_topics import WorkerTopics
from oncelog.log.disk import Disk
from oncelog.server.settings import Settings


class Worker(ClusterBroker):
    TOPICS = WorkerTopics
    SUPERVISOR = WorkerSupervisor

    def __init__(self, settings: Settings, tree: Tree, *, clock: Clock | None = None) -> None:
        super().__init__(settings, tree, clock=clock)
        assert isinstance(self.supervisor, WorkerSupervisor)
        self.supervisor.has_let_go = self.broker.housekeeping.has_let_go

    def _open_own(self, settings: Settings, disk: Disk, clock: Clock) -> Own:
        return FolderOfParent(disk, settings.log_dir, clock, settings.node_id, settings.oncelog_lease_lifetime_ms)
