"""One partition as a machine: for each state, what may happen, what is done then, and which state follows.

This is all of it. Whatever happens to a partition goes through `happen`, or `end` for its requests; nothing else sets
its state, and what is not in the table cannot happen. An action may find that something else has happened by what it
did; then that is looked up in its turn, in the state that has just been reached. `docs/slots.md` shows the table as it
stands here.

    SENDING -> DRAINING -> SENDING      something failed, and all of it is sent again in the same slots
    DRAINING -> LOOKING_UP -> SENDING   the log had to be asked how far the identity got
    LOOKING_UP -> SETTLING -> LOOKING_UP   it was asked while an attempt could still arrive
"""

from collections.abc import Callable, Mapping
from typing import Final

from oncelog.slots import actions as do
from oncelog.slots.batch import Batch
from oncelog.slots.messages import BatchAnswer
from oncelog.slots.partition import Partition
from oncelog.slots.states import DRAINING, LOOKING_UP, SENDING, SETTLING, STOPPED, State
from oncelog.slots.states import Event as On

Action = Callable[..., On | None]
Row = tuple[Action, State]

TABLE: Final[Mapping[State, Mapping[On, Row]]] = {
    SENDING: {
        On.STORED: (do.acknowledge, SENDING),
        On.AGAIN: (do.try_again, DRAINING),
        On.UNSURE: (do.doubt, DRAINING),
        On.LOST: (do.lose, DRAINING),
        On.UNSENT: (do.hold_back, DRAINING),
        On.UNCHECKED: (do.check_first, DRAINING),
        On.DISPUTED: (do.dispute, DRAINING),
        On.FENCED: (do.fence_off, STOPPED),
        On.TOO_LARGE: (do.cut_in_half, DRAINING),
        On.REFUSED: (do.refuse, DRAINING),
        On.ODD: (do.refuse_doubtful, DRAINING),
        On.LATE: (do.nothing, DRAINING),
        On.SILENCE: (do.ask, LOOKING_UP),
        On.LEASE_OVER: (do.judge, DRAINING),
        On.LEASE_LEFT: (do.leave_lease, SENDING),
        On.GIVEN_UP: (do.give_up, DRAINING),
        On.UNFILLED: (do.stop, STOPPED),
        On.RESUMED: (do.resume, SENDING),
    },
    DRAINING: {
        On.STORED: (do.acknowledge, DRAINING),
        On.AGAIN: (do.try_again, DRAINING),
        On.UNSURE: (do.doubt, DRAINING),
        On.LOST: (do.lose, DRAINING),
        On.UNSENT: (do.hold_back, DRAINING),
        On.UNCHECKED: (do.check_first, DRAINING),
        On.DISPUTED: (do.land, DRAINING),
        On.FENCED: (do.fence_off, STOPPED),
        On.TOO_LARGE: (do.cut_in_half, DRAINING),
        On.REFUSED: (do.refuse, DRAINING),
        On.ODD: (do.refuse_doubtful, DRAINING),
        On.LATE: (do.nothing, DRAINING),
        On.LANDED: (do.judge, DRAINING),
        On.IN_PLACE: (do.nothing, SENDING),
        On.DOUBTFUL: (do.ask, LOOKING_UP),
        On.MOVABLE: (do.move, SENDING),
        On.SPENT: (do.move_to_another_identity, SENDING),
        On.GIVEN_UP: (do.give_up, DRAINING),
        On.UNFILLED: (do.stop, STOPPED),
    },
    LOOKING_UP: {
        On.FOUND: (do.take_note, LOOKING_UP),
        On.UNKNOWABLE: (do.report_unknowable, LOOKING_UP),
        On.TWICE: (do.stop, STOPPED),
        On.IN_PLACE: (do.go_on_in_place, SENDING),
        On.EARLY: (do.wait_for_the_end, SETTLING),
        On.MOVABLE: (do.move, SENDING),
        On.SPENT: (do.move_to_another_identity, SENDING),
        On.GIVEN_UP: (do.give_up, LOOKING_UP),
        On.UNFILLED: (do.stop, STOPPED),
        On.RESUMED: (do.resume, SENDING),
    },
    SETTLING: {
        On.DUE: (do.ask, LOOKING_UP),
        On.GIVEN_UP: (do.give_up, SETTLING),
    },
    STOPPED: {
        On.STORED: (do.acknowledge, STOPPED),
        On.AGAIN: (do.try_again, STOPPED),
        On.UNSURE: (do.doubt, STOPPED),
        On.LOST: (do.lose, STOPPED),
        On.UNSENT: (do.hold_back, STOPPED),
        On.UNCHECKED: (do.check_first, STOPPED),
        On.DISPUTED: (do.land, STOPPED),
        On.FENCED: (do.fence_off, STOPPED),
        On.TOO_LARGE: (do.refuse, STOPPED),
        On.REFUSED: (do.refuse, STOPPED),
        On.ODD: (do.refuse_doubtful, STOPPED),
        On.LATE: (do.nothing, STOPPED),
        On.LANDED: (do.clear, STOPPED),
        On.RESUMED: (do.resume, SENDING),
    },
}


def happen(partition: Partition, event: On, now_ms: int, *about: object) -> None:
    """Does what the table says, and what follows from it."""
    action, partition.state = TABLE[partition.state][event]
    follows = action(partition, now_ms, *about)
    while follows is not None:
        action, partition.state = TABLE[partition.state][follows]
        follows = action(partition, now_ms)


def end(partition: Partition, event: On, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    """`happen` to a batch's request. It comes once a batch, so that a tuple of what it is about would be felt."""
    action, partition.state = TABLE[partition.state][event]
    follows = action(partition, now_ms, batch, answer)
    if follows is not None:
        happen(partition, follows, now_ms)


def when_landed(partition: Partition, now_ms: int) -> None:
    """LANDED happens behind whatever may have been the last batch in flight."""
    if not partition.flying and partition.state in (DRAINING, STOPPED):
        happen(partition, On.LANDED, now_ms)
