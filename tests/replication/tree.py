"""A tree in memory, with what brokers agree on."""

from oncelog.producers.leases import END_OF_LEASED_PIDS
from oncelog.replication.leader import Proposal
from oncelog.replication.leadership import Leadership, Peer
from tests.replication.promises import Violation


class Tree:
    """What ZooKeeper or the parent's process keeps: one leadership, the brokers, and the sequence of pids."""

    def __init__(self, state: Leadership) -> None:
        self.state = state
        self.peers: dict[int, Peer] = {}
        self.leaders: dict[int, int] = {}  # by epoch
        self.next_pid = END_OF_LEASED_PIDS - 2_000

    def register(self, broker: int) -> int:
        epoch = self.peers[broker].epoch + 1 if broker in self.peers else 1
        self.peers[broker] = Peer(epoch)
        return epoch

    def set(self, proposal: Proposal) -> bool | None:
        """None: the leadership has another version by now, which says what became of it. False: a broker has another
        epoch by now. That is looked at first, so it may be the answer to a change that had counted before."""
        if any(self.peers[broker].epoch != epoch for broker, epoch in proposal.epochs):
            return False
        if proposal.state.version != self.state.version + 1:
            return None
        self.state = proposal.state
        leader, epoch = self.state.leader, self.state.epoch
        if leader >= 0 and self.leaders.setdefault(epoch, leader) != leader:
            raise Violation(f"epoch {epoch} has two leaders")
        return True

    def take_pids(self, next_pid: int, end_pid: int) -> bool:
        """By compare-and-set."""
        if self.next_pid != next_pid:
            return False
        self.next_pid = end_pid
        return True
