"""A leader's knowledge of its followers, and what follows from it: the high watermark, and the brokers in sync.

The high watermark is the least end over everybody who is in sync or would be by a change that is on its way: as long as
nobody can say whether that change counts, both sets must have a record before it is safe. It stands still while fewer
are in sync than `min.insync.replicas`, and while anybody is eligible to lead without being waited for.
"""

from typing import NamedTuple

from oncelog.replication.leadership import Leadership, Peers, grown, moved, shrunk


class Proposal(NamedTuple):
    """A change on its way to the tree. It counts if the leadership still has the version before, and each of the
    brokers named is still in the epoch that is said of it."""

    state: Leadership
    epochs: tuple[tuple[int, int], ...]  # broker and its epoch


class Rules(NamedTuple):
    """The settings of brokers; the names behind are Kafka's."""

    min_in_sync: int = 1  # min.insync.replicas
    lag_ms: int = 10_000  # replica.lag.time.max.ms
    prefer_after_ms: int = -1  # leader.imbalance.check.interval.seconds; -1: never


class Follower:
    """One, as far as its last fetch tells."""

    __slots__ = ("asked_ms", "broker_epoch", "caught_up_ms", "end", "leader_end")

    def __init__(self, broker_epoch: int, now_ms: int) -> None:
        self.broker_epoch = broker_epoch
        self.end = -1  # -1 before its first fetch in this epoch of the leader
        self.asked_ms = now_ms
        self.caught_up_ms = now_ms
        self.leader_end = -1  # as it was at its last fetch


class Leader:
    """One partition, for one epoch of its leader."""

    def __init__(self, me: int, state: Leadership, end: int, rules: Rules, now_ms: int) -> None:
        self._me = me
        self.state = state
        self.proposed: Proposal | None = None
        self.epoch_start = end
        self.rules = rules
        self._began_ms = now_ms
        self._followers: dict[int, Follower] = {}

    @property
    def has_enough(self) -> bool:
        """Whether what is appended with acks=all may be acknowledged."""
        return len(self.state.in_sync) >= self.rules.min_in_sync

    def is_followed_by(self, broker: int) -> bool:
        """Whether what it says it has may count."""
        return broker != self._me and broker in self.state.replicas

    def fetched(self, broker: int, broker_epoch: int, offset: int, end: int, now_ms: int) -> None:
        """A follower asked for what follows `offset`, of which it has all before; this log ends at `end`."""
        follower = self._followers.get(broker)
        if follower is None or follower.broker_epoch < broker_epoch:
            caught_up_ms = self._began_ms if follower is None else follower.caught_up_ms
            follower = self._followers[broker] = Follower(broker_epoch, caught_up_ms)
        if broker_epoch < follower.broker_epoch:
            return  # of a process that has ended
        if offset >= end:
            follower.caught_up_ms = now_ms
        elif follower.leader_end >= 0 and offset >= follower.leader_end:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.asked_ms)
        follower.end, follower.leader_end, follower.asked_ms = offset, end, now_ms

    def lags(self, end: int) -> dict[int, int]:
        """The number of records that each follower lacks which has asked in this epoch, of this log up to `end`."""
        return {
            broker: max(0, end - follower.end)
            for broker, follower in sorted(self._followers.items())
            if follower.end >= 0 and broker in self.state.replicas
        }

    def high_watermark(self, end: int) -> int:
        """The high watermark by what is known; -1 where it must stand still. `end` is that of this log, as far as it is
        safe here."""
        if not self.has_enough or self.state.eligible:
            return -1
        awaited = set(self.state.in_sync)
        if self.proposed is not None:
            awaited.update(self.proposed.state.in_sync)
        ends = [self._end_of(broker) for broker in awaited if broker != self._me]
        return min([end, *ends])

    def _end_of(self, broker: int) -> int:
        follower = self._followers.get(broker)
        return -1 if follower is None else follower.end

    def change(self, peers: Peers, high_watermark: int, now_ms: int) -> Proposal | None:
        """The state that the tree should have instead. One change at a time."""
        if self.proposed is not None:
            return self.proposed
        leaving = [
            broker for broker in self.state.in_sync if broker != self._me and self._is_out(broker, peers, now_ms)
        ]
        checks = [self._me]
        if leaving:
            state = shrunk(self.state, leaving, self.rules.min_in_sync)
        elif (joining := self._joining(peers, high_watermark, now_ms)) is not None:
            state = grown(self.state, joining, self.rules.min_in_sync)
            checks.append(joining)
        elif self.state.is_moved:
            state = moved(self.state, self.rules.min_in_sync)
        elif self.has_enough and self.state.eligible:  # fewer are asked for than before
            state = shrunk(self.state, (), self.rules.min_in_sync)
        else:
            return None
        self.proposed = Proposal(state, tuple((broker, peers[broker].epoch) for broker in checks))
        return self.proposed

    def _is_out(self, broker: int, peers: Peers, now_ms: int) -> bool:
        peer, follower = peers.get(broker), self._followers.get(broker)
        if peer is None or not peer.is_live or peer.is_stopping:
            return True
        caught_up_ms = self._began_ms if follower is None else follower.caught_up_ms
        return now_ms - caught_up_ms > self.rules.lag_ms

    def _joining(self, peers: Peers, high_watermark: int, now_ms: int) -> int | None:
        candidates = (broker for broker in self.state.replicas if broker not in self.state.in_sync)
        return next((each for each in candidates if self.is_in(each, peers, high_watermark, now_ms)), None)

    def is_in(self, broker: int, peers: Peers, high_watermark: int, now_ms: int) -> bool:
        peer, follower = peers.get(broker), self._followers.get(broker)
        return (
            follower is not None
            and peer is not None
            and peer == (follower.broker_epoch, True, False)
            and follower.end >= max(high_watermark, self.epoch_start)
            and now_ms - follower.caught_up_ms <= self.rules.lag_ms
        )

    def seen(self, state: Leadership) -> None:
        """Take in the state in the tree, of this epoch."""
        self.state = state
        if self.proposed is not None and state.version >= self.proposed.state.version:
            self.proposed = None

    def refused(self) -> None:
        """The change does not count, and never will."""
        self.proposed = None
