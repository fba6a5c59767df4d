"""The leader of a partition and the brokers that have all of it, and each change that may be made to that.

A `Leadership` stands in the tree and is changed by compare-and-set: a change names the version it was made from, and
counts if nobody was faster. Everything here is a function of one such state and of what a broker knows of its peers,
which may be old: no change is unsafe because of that, at most it is in vain.

    in sync      has every record below the high watermark, and is waited for
    eligible     left the in-sync set when that was smaller than `min.insync.replicas`: the watermark has stood still
                 since, so it has every record below it, too (KIP-966)
    last         came back from an unclean end, and may have lost records: with nobody in sync or eligible, all of these
                 are waited for, every live replica says how much it has, and the one that has most leads (what is
                 missing there is lost, and that is said). They are remembered until `min.insync.replicas` are in sync:
                 one of them may have lost nothing

Replicas are moved in two changes: those that are to be added become replicas, which nobody waits for; once all that are
to stay are in sync, the others leave in one change, the leader too (KIP-455, KAFKA-9672). Somebody is elected then.
"""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

NOBODY = -1
UNKNOWN = -1, -1  # the extent of a log whose broker has not said it


class Peer(NamedTuple):
    """A broker as the tree shows it."""

    epoch: int  # greater after each start
    is_live: bool = True
    is_stopping: bool = False


Peers = Mapping[int, Peer]
Extent = tuple[int, int]  # of a log: the epoch of its last record, and where that ends


class Leadership(NamedTuple):
    replicas: tuple[int, ...]  # the preferred leader first
    leader: int = NOBODY
    epoch: int = -1  # of the leader; greater with each election
    in_sync: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    last: tuple[tuple[int, Extent], ...] = ()  # each with its broker
    version: int = 0
    adding: tuple[int, ...] = ()  # of the replicas: those that are new
    removing: tuple[int, ...] = ()  # those that leave once all others are in sync

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas, once they are moved."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def is_moved(self) -> bool:
        """Whether those that are to leave can."""
        return bool(self.adding or self.removing) and set(self.target) <= set(self.in_sync)

    @property
    def is_as_preferred(self) -> bool:
        return self.leader == self.replicas[0]

    @property
    def is_incomplete(self) -> bool:
        """Whether a broker that is to have all of it is not known to."""
        return len(self.in_sync) < len(self.replicas)

    @property
    def is_lost(self) -> bool:
        """Nobody is known to have all of it."""
        return not self.in_sync and not self.eligible


def first(replicas: Iterable[int], up: Container[int] | None = None) -> Leadership:
    """The leadership of a partition made just now: those of its replicas that are up are in sync, as they have all of
    nothing. Where none is up any more, they all are."""
    replicas = tuple(replicas)
    there = tuple(broker for broker in replicas if up is None or broker in up)
    return Leadership(replicas, in_sync=there or replicas)


def successor(state: Leadership, peers: Peers) -> int:
    """The broker that is to lead next; every broker that sees the same state computes the same."""
    for members in (state.in_sync, state.eligible):
        live = [broker for broker in members if _is_live(broker, peers)]
        staying = [broker for broker in live if not peers[broker].is_stopping]
        for broker in state.replicas:
            if broker in (staying or live):
                return broker
    if not state.is_lost or not state.last:
        return NOBODY
    extents = {broker: UNKNOWN for broker in state.replicas if _is_live(broker, peers)} | dict(state.last)
    if UNKNOWN in extents.values():
        return NOBODY
    most = max(extents.values())
    candidates = [broker for broker in state.replicas if extents.get(broker) == most and _is_live(broker, peers)]
    return candidates[0] if candidates else NOBODY


def needs_leader(state: Leadership, peers: Peers) -> bool:
    leader = peers.get(state.leader)
    return leader is None or not leader.is_live or (leader.is_stopping and successor(state, peers) != state.leader)


def elected(state: Leadership, me: int, peers: Peers, min_in_sync: int) -> Leadership:
    """This broker as the leader. In the same change brokers that are not live leave the in-sync set: acknowledgements
    would wait for them."""
    in_sync = [broker for broker in state.in_sync if broker == me or _is_live(broker, peers)]
    changed = _with_in_sync(state, in_sync if me in in_sync else [me], min_in_sync)
    # Records missing in a partition that was lost are given up here, and nobody is asked for them again.
    return changed._replace(leader=me, epoch=state.epoch + 1, last=() if state.is_lost else changed.last)


def shrunk(state: Leadership, leaving: Iterable[int], min_in_sync: int) -> Leadership:
    gone = set(leaving)
    return _with_in_sync(state, [broker for broker in state.in_sync if broker not in gone], min_in_sync)


def grown(state: Leadership, joining: int, min_in_sync: int) -> Leadership:
    """The leader's proposal once that broker has all of it; the tree must check besides that it has not started
    again."""
    return _with_in_sync(state, [*state.in_sync, joining], min_in_sync)


def resigned(state: Leadership) -> Leadership:
    """The first replica in line leads next: the preferred leader, if it is in sync."""
    return state._replace(leader=NOBODY, version=state.version + 1)


def reassigned(state: Leadership, target: Iterable[int] | None, min_in_sync: int) -> Leadership:
    """The way to these replicas, the preferred leader first; with None back to those that there were. ValueError where
    too few who have everything would be left meanwhile, or one who may have it would not be asked."""
    before = tuple(broker for broker in state.replicas if broker not in state.adding)
    wanted = before if target is None else tuple(target)
    replicas = (*wanted, *(broker for broker in before if broker not in wanted))
    changed = only_of(state, replicas)
    are_too_few = len(changed.in_sync) < min(len(state.in_sync), min_in_sync)
    if are_too_few or (changed.is_lost and (not state.is_lost or changed.last != state.last)):
        raise ValueError("too few of these brokers, and of those before, have all of the partition")
    return changed._replace(
        adding=tuple(broker for broker in wanted if broker not in before),
        removing=tuple(broker for broker in before if broker not in wanted),
        version=state.version + 1,
    )


def moved(state: Leadership, min_in_sync: int) -> Leadership:
    """The leader's proposal once it `is_moved`."""
    staying = [broker for broker in state.in_sync if broker in state.target]
    return only_of(_with_in_sync(state, staying, min_in_sync), state.target)._replace(adding=(), removing=())


def only_of(state: Leadership, replicas: tuple[int, ...]) -> Leadership:
    """The others count for nothing any more, and remove their logs. Nor does what they said that they had, should they
    be added again: so somebody has to be elected anew, and those who join then say it in that epoch."""
    return state._replace(
        replicas=replicas,
        leader=state.leader if set(state.replicas) <= set(replicas) else NOBODY,
        in_sync=tuple(broker for broker in state.in_sync if broker in replicas),
        eligible=tuple(broker for broker in state.eligible if broker in replicas),
        last=tuple(each for each in state.last if each[0] in replicas),
    )


def withdrawn(state: Leadership, me: int, extent: Extent) -> Leadership:
    """The proposal of a broker that came back from an unclean end: it may lack records that it had acknowledged."""
    rest = state._replace(
        in_sync=tuple(broker for broker in state.in_sync if broker != me),
        eligible=tuple(broker for broker in state.eligible if broker != me),
    )
    if rest.is_lost:  # the others may have followed a leader since they said how far they were
        rest = rest._replace(last=tuple((broker, UNKNOWN) for broker, _ in state.last))
    leader = NOBODY if state.leader == me else state.leader  # who leads is in sync, so there is none where all is lost
    return told(rest, me, extent)._replace(leader=leader)


def left(state: Leadership, me: int, min_in_sync: int) -> Leadership:
    """The proposal of a broker whose disk takes nothing in for now, while others are in sync. It lacks nothing: it is
    waited for no more, and in sync again once it has the records that they have taken in."""
    leader = NOBODY if state.leader == me else state.leader
    return shrunk(state, (me,), min_in_sync)._replace(leader=leader)


def told(state: Leadership, me: int, extent: Extent) -> Leadership:
    """The state with the end of this broker's log in it."""
    last = dict(state.last) | {me: extent}
    return state._replace(last=tuple(sorted(last.items())), version=state.version + 1)


def _with_in_sync(state: Leadership, in_sync: Iterable[int], min_in_sync: int) -> Leadership:
    members = set(in_sync)
    eligible: set[int] = set()
    last: tuple[tuple[int, Extent], ...] = ()
    if len(members) < min_in_sync:
        eligible = {*state.in_sync, *state.eligible} - members
        last = tuple(each for each in state.last if each[0] not in members)
    ordered = [tuple(broker for broker in state.replicas if broker in some) for some in (members, eligible)]
    return state._replace(in_sync=ordered[0], eligible=ordered[1], last=last, version=state.version + 1)


def _is_live(broker: int, peers: Peers) -> bool:
    return broker in peers and peers[broker].is_live
