"""One assigned partition: where reading stands, and what has to be found out before it can go on."""

from dataclasses import dataclass, field
from enum import IntEnum

from oncelog.client.fetching.values import EARLIEST, LATEST, NO_EPOCH, NO_NODE, STORED, Leader
from oncelog.slots import AnyPlace

MOST_EPOCHS = 64
LEAST_BYTES = 64 << 10


class Stage(IntEnum):
    STORED = 0  # the group's committed offset has to be asked for
    FIND = 1  # EARLIEST or LATEST has to be asked for
    CHECK = 2  # the leader's epoch is newer than the position: is what was read still there? (KIP-320)
    FETCH = 3
    HALTED = 4  # an error that only a seek or a new assignment ends


@dataclass(slots=True, eq=False)
class Cursor:
    partition: AnyPlace
    max_bytes: int
    stage: Stage = Stage.STORED
    offset: int = -1
    epoch: int = NO_EPOCH  # of the last record before `offset`
    read_offset: int = -1  # behind what was read last
    epochs: list[tuple[int, int]] = field(default_factory=list)  # of what was read last, each with its first offset
    find: int = LATEST
    leader: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    checked_epoch: int = NO_EPOCH  # the leader's epoch under which the position was last known to be sound
    topic_id: object = None
    replica: int = NO_NODE
    replica_until_ms: int = 0
    version: int = 0  # one more whenever what was fetched before is not to be seen any more
    damaged_version: int = -1  # nothing more of what was fetched under it is read; written by the thread that reads
    began_at: tuple[int, int] | None = None  # the first position, and its epoch, since the application chose
    asking: int = 0  # the request that is under way, or 0; answers to any other are stale
    due_ms: int = 0  # nothing is asked before
    is_paused: bool = False
    is_held_back: bool = False
    stop_at: int | None = None  # nothing is asked for from this offset on
    queued_bytes: int = 0
    queued_records: int = 0
    ahead: int = -1  # the offset of a batch that the last answer brought from behind its own high watermark
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    end_reported_at: int = -1
    reported_code: int = 0

    def start_at(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Go on from an offset, or from what EARLIEST, LATEST or STORED stands for; all that was fetched is stale."""
        self.version += 1
        self.began_at = None
        self.asking = 0
        self.due_ms = 0
        self.end_reported_at = -1
        self.reported_code = 0
        self.epoch = NO_EPOCH
        self.checked_epoch = NO_EPOCH
        if offset >= 0:
            self.position(offset, epoch)
        elif offset == STORED:
            self.stage = Stage.STORED
        elif offset in (EARLIEST, LATEST):
            self.reset_to(offset)
        else:
            raise ValueError(f"no such offset: {offset}")

    def position(self, offset: int, epoch: int, *, is_read: bool = True) -> None:
        """`is_read`: the epoch is that of the record before. Otherwise it is only the leader's, who may have written
        nothing under it."""
        self.offset = offset
        self.read_offset = -1
        self.epoch = epoch
        known = [each for each in self.epochs if each[1] < offset]
        if is_read and offset > 0 and not (known and known[-1][0] == epoch):
            known = [(epoch, offset - 1)]
        self.epochs = known if is_read and epoch != NO_EPOCH else []
        self.asking = 0
        if self.began_at is None:
            self.began_at = offset, epoch
        self.stage = Stage.FETCH
        self.check()

    def read_up_to(self, offset: int, epochs: list[tuple[int, int]]) -> None:
        """Records were fetched, written by these leaders."""
        self.offset = self.read_offset = offset
        for epoch, first_offset in epochs:
            self.epoch = epoch
            if epoch != self.read_epoch:
                self.epochs.append((epoch, first_offset))
        del self.epochs[:-MOST_EPOCHS]

    def truncated_to(self, offset: int, leaders_epoch: int) -> None:
        """Go on there. Where the leader's epoch is newer than ours, we do not know yet whether even that is sound."""
        known = [epoch for epoch, first_offset in self.epochs if first_offset < offset]
        epoch = known[-1] if known else leaders_epoch
        if epoch < leaders_epoch:
            self.checked_epoch = NO_EPOCH
        self.position(offset, epoch)

    @property
    def read_epoch(self) -> int:
        """The epoch of the last record, if one was read."""
        return self.epochs[-1][0] if self.epochs else NO_EPOCH

    def differs_from(self, epoch: int, end_offset: int) -> int:
        """The first offset where what was read differs from the log of a leader whose last epoch, up to ours, is this
        one and ends there. Where its epoch is older than ours, all that we have of newer ones differs too."""
        return min([end_offset, *(first_offset for ours, first_offset in self.epochs if ours > epoch)])

    def reset_to(self, find: int) -> None:
        self.find = find
        self.stage = Stage.FIND
        self.asking = 0

    def check(self) -> None:
        """A newer leader is asked whether it has what was read, before anything more is read."""
        if self.stage == Stage.FETCH and self.epoch != NO_EPOCH and self.checked_epoch < self.leader_epoch:
            self.stage = Stage.CHECK
            self.asking = 0

    def halt(self) -> None:
        self.stage = Stage.HALTED
        self.asking = 0

    def led_by(self, leader: Leader) -> None:
        """Take in what metadata says. It may come from a broker that lags behind what is known already."""
        if leader.topic_id != self.topic_id:
            # Another topic of the same name: neither epochs nor offsets of the old one mean anything in it.
            if self.topic_id is not None:
                self.epoch = self.leader_epoch = self.checked_epoch = NO_EPOCH
                self.read_offset = -1
            self.topic_id = leader.topic_id
        elif leader.epoch != NO_EPOCH and leader.epoch < self.leader_epoch:
            return
        if leader.node_id != self.leader:
            if self.stage != Stage.STORED:
                self.asking = 0
            self.replica = NO_NODE
        self.leader, self.leader_epoch = leader.node_id, leader.epoch
        self.check()

    def forget_leader(self) -> None:
        self.leader = NO_NODE
        self.replica = NO_NODE
        self.asking = 0

    @property
    def is_read_up(self) -> bool:
        return self.stop_at is not None and self.offset >= self.stop_at

    def size_next(self, most_bytes: int, seen_bytes: int, seen_offsets: int) -> None:
        """Set the size of the next request; before an end, about the bytes left up to it, by the size of the last
        answer."""
        self.max_bytes = most_bytes
        if self.stop_at is not None and seen_offsets > 0:
            left_bytes = (self.stop_at - self.offset) * seen_bytes // seen_offsets
            self.max_bytes = min(most_bytes, max(LEAST_BYTES, left_bytes * 5 // 4))

    def node_at(self, now_ms: int) -> int:
        """Whom to fetch from: the follower that the leader has named for us (KIP-392), or the leader."""
        if self.replica != NO_NODE and now_ms < self.replica_until_ms:
            return self.replica
        return self.leader
