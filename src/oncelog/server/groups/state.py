"""The life of a group in one table.

Members who join bring about a *rebalance*: everybody has to join again (PREPARING_REBALANCE), until all have or the
rebalance timeout is over. Then a *generation* begins: one member is told that it leads, and all ask for their share
(COMPLETING_REBALANCE). When the leader's answer is stored, everyone gets its share: STABLE.

`rebalance.py` raises the events, `group.py` tells which message may raise them. A pair that is not in the table is a
bug, and shows as a KeyError.
"""

from enum import Enum

from oncelog.server.errors import ErrorCode


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    REBALANCE = "somebody came, went or changed"
    ALL_JOINED = "all members joined, or the time to do so is over"
    NOBODY_JOINED = "the time to join is over and no member is left"
    ASSIGNED = "the leader's assignment is stored"
    DELETED = "the group was deleted, or the server stops"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.EMPTY: {
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.DELETED: State.DEAD,
    },
    State.PREPARING_REBALANCE: {
        Event.ALL_JOINED: State.COMPLETING_REBALANCE,
        Event.NOBODY_JOINED: State.EMPTY,
        Event.DELETED: State.DEAD,
    },
    State.COMPLETING_REBALANCE: {
        Event.ASSIGNED: State.STABLE,
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.DELETED: State.DEAD,
    },
    State.STABLE: {
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.DELETED: State.DEAD,
    },
    State.DEAD: {},
}

HEARTBEAT_ANSWERS: dict[State, ErrorCode] = {
    State.EMPTY: ErrorCode.unknown_member_id,
    State.PREPARING_REBALANCE: ErrorCode.rebalance_in_progress,
    State.COMPLETING_REBALANCE: ErrorCode.none,
    State.STABLE: ErrorCode.none,
    State.DEAD: ErrorCode.coordinator_not_available,
}
