"""One broker's part in the replication of its partitions: events in, what to do out.

What it is told: what the tree says of a partition and of the other brokers (late, and maybe an older version than was
seen before), what became of its own changes where that is sure, followers' fetches, its leaders' answers, and the time.
What it says: which changes the tree should make, and whom to ask for records.
"""

import sys
from typing import NamedTuple

from oncelog.clock import Now
from oncelog.replication import following
from oncelog.replication.following import Answer, NextFetch, Refusal
from oncelog.replication.leader import Leader, Proposal, Rules
from oncelog.replication.leadership import (
    NOBODY,
    Leadership,
    Peer,
    Peers,
    elected,
    left,
    needs_leader,
    successor,
    told,
    withdrawn,
)
from oncelog.replication.ports import Log

NEVER_MS = sys.maxsize
GONE = Peer(-1, is_live=False)


class Fetching(NamedTuple):
    """A follower's fetch, with who it is."""

    broker: int
    broker_epoch: int
    asked: NextFetch


class Replica:
    """One partition at one broker."""

    def __init__(self, me: int, log: Log, rules: Rules, *, is_clean: bool) -> None:
        """`is_clean`: everything that this broker acknowledged is in its log. Otherwise it withdraws first; the caller
        keeps a note of that on the disk until `is_clean` is true, since it may be killed before."""
        self._me = me
        self.log = log
        self.rules = rules
        self.state: Leadership | None = None
        self.leader: Leader | None = None
        self.is_clean = is_clean
        self._following_since_ms = NEVER_MS  # in sync, under another leader
        self._change: Proposal | None = None  # of mine, but as a leader; until it is known what became of it

    def obey(self, rules: Rules) -> None:
        """They may be changed at any time."""
        self.rules = rules
        if self.leader is not None:
            self.leader.rules = rules
            self.move_high_watermark()

    # Who leads

    def see(self, state: Leadership, now_ms: int) -> None:
        """Take in the state in the tree; a version older than one seen before is ignored."""
        if self.state is not None and state.version <= self.state.version:
            return
        self.state = state
        if self._me not in state.in_sync or state.leader == self._me:
            self._following_since_ms = NEVER_MS
        elif self._following_since_ms == NEVER_MS:
            self._following_since_ms = now_ms
        is_mine = self._is_mine(state)
        if self._change is not None and self._change.state.version <= state.version:
            self._change = None
        if is_mine:
            self._lead(state, now_ms)
        elif self.leader is not None and state.leader == self._me and state.epoch == self.leader.state.epoch:
            self.leader.seen(state)
            self.move_high_watermark()
        else:
            self.leader = None
            self.log.follow_epoch(state.epoch)

    def _is_mine(self, state: Leadership) -> bool:
        """Whether I was elected, in this life: a tree takes no election from an earlier one."""
        mine = None if self._change is None else self._change.state
        return mine is not None and mine.leader == state.leader == self._me and mine.epoch == state.epoch

    def _lead(self, state: Leadership, now_ms: int) -> None:
        self.log.begin_epoch(state.epoch)
        self.leader = Leader(self._me, state, self.log.next_offset, self.rules, now_ms)
        self.move_high_watermark()

    def change(self, peers: Peers, now_ms: int) -> Proposal | None:
        """The state that the tree should have instead, if it is for this broker to say."""
        state = self.state
        self.try_disk(now_ms)
        if state is None or self._me not in peers or self._me not in state.replicas:
            return None
        if self._change is None:
            self._change = self._own_change(state, peers, now_ms)
        if self._change is not None:
            return self._change
        if self.leader is None:
            return None
        return self.leader.change(peers, self.log.high_watermark, now_ms)

    def try_disk(self, now_ms: int) -> None:
        """A disk that has refused something may take something in again."""
        if self.log.refuses and self.log.offline is None:
            self.log.try_disk(now_ms)

    def _own_change(self, state: Leadership, peers: Peers, now_ms: int) -> Proposal | None:
        me, last = self._me, dict(state.last)
        changed: Leadership | None = None
        if not self.is_clean:
            if me in state.in_sync or me in state.eligible:
                changed = withdrawn(state, me, self._extent())
            else:
                self.is_clean = True  # nobody counts on it
        elif self.gives_way(state, peers, now_ms):
            changed = self._without_me(state)
        elif state.is_lost and last:
            if last.get(me) != self._extent():
                changed = told(state, me, self._extent())
            elif successor(state, peers) == me:
                changed = elected(state, me, peers, self.rules.min_in_sync)
        elif self.leader is None and self.should_lead(state, peers, now_ms):
            changed = elected(state, me, peers, self.rules.min_in_sync)
        return None if changed is None else Proposal(changed, ((me, peers[me].epoch),))

    def gives_way(self, state: Leadership, peers: Peers, now_ms: int) -> bool:
        """This log takes nothing in, and another broker can go on: one that has all of it, and, as long as the disk may
        take something in again, one that is in sync and stays."""
        if self.log.offline is not None:
            others = {each for each in (*state.in_sync, *state.eligible) if peers.get(each, GONE).is_live}
        elif self.log.refuses:
            others = {each for each in state.in_sync if peers.get(each, GONE)[1:] == (True, False)}
        else:
            return False
        return bool(others - {self._me}) and self.should_lead(state, peers, now_ms)

    def _without_me(self, state: Leadership) -> Leadership:
        if self.log.offline is not None:
            return withdrawn(state, self._me, self._extent())
        return left(state, self._me, self.rules.min_in_sync)

    def should_lead(self, state: Leadership, peers: Peers, now_ms: int) -> bool:
        """A leader that started anew has no epoch of its own yet, so it is elected again. The preferred
        one takes it back once it has been in sync for a while."""
        if state.leader == self._me:
            return True
        is_preferred = self._me == state.replicas[0] and not peers[self._me].is_stopping
        after_ms = self.rules.prefer_after_ms
        if is_preferred and after_ms >= 0 and now_ms - self._following_since_ms >= after_ms:
            return True
        return needs_leader(state, peers) and successor(state, peers) == self._me

    def _extent(self) -> tuple[int, int]:
        end = self.log.next_offset
        return self.log.epochs.last_before(end), end

    def refused(self, proposal: Proposal) -> None:
        """It does not count, and never will."""
        if self._change == proposal:
            self._change = None
        if self.leader is not None and self.leader.proposed == proposal:
            self.leader.refused()
            self.move_high_watermark()

    # Records

    def move_high_watermark(self) -> None:
        """The high watermark moves as far as it may; called after each append, too."""
        if self.leader is not None:
            self.log.advance_high_watermark(self.leader.high_watermark(self.log.safe_offset))

    @property
    def takes_nothing(self) -> bool:
        return self.log.offline is not None or self.log.refuses

    @property
    def lags(self) -> dict[int, int]:
        """The number of records that each follower lacks, as far as its leader knows."""
        return {} if self.leader is None else self.leader.lags(self.log.next_offset)

    def fetch(self) -> NextFetch | None:
        """The next fetch from the leader; None where nobody else leads, or nothing can be taken in."""
        state = self.state
        if state is None or state.leader in (NOBODY, self._me) or not self.is_clean or self.takes_nothing:
            return None
        return following.ask(self.log)

    def refusal(self, asked: NextFetch) -> Refusal | None:
        return following.refusal(self.log, asked)

    def fetched(self, fetching: Fetching, now_ms: int) -> Refusal | None:
        """A fetch that the leader does not refuse acknowledges all before it."""
        broker, broker_epoch, asked = fetching
        refused = following.refusal(self.log, asked)
        if refused is None and self.leader is not None:
            self.leader.fetched(broker, broker_epoch, asked.offset, self.log.next_offset, now_ms)
            self.move_high_watermark()
        return refused

    def answer(self, fetching: Fetching, now_ms: int) -> Answer | None:
        """None: this broker does not lead."""
        if self.leader is None:
            return None
        refused = self.fetched(fetching, now_ms)
        return following.answer(self.log, fetching.asked) if refused is None else refused

    def take(self, asked: NextFetch, answered: Answer, now: Now) -> None:
        if self.leader is None:
            following.take(self.log, asked, answered, now)
