"""One cell as a machine: for each state, what may happen, what is done then, and which state follows.

This is all of it, and it is read as `oncelog.slots.table` is: nothing else sets the state, what is not in the table
cannot happen, and an action may find that something else has happened by what it did. `docs/flow.md` shows it.

    READING -> TAKING_OVER -> CATCHING_UP -> WORKING      a holder begins
    WORKING -> DRAINING -> WORKING                        a commit without a plan
    WORKING -> DRAINING -> PLANNING -> WORKING            and with one
"""

from collections.abc import Callable, Mapping
from typing import Final

from oncelog.flow import actions as do
from oncelog.flow.holding import Holding
from oncelog.flow.states import Event as On
from oncelog.flow.states import State

Row = tuple[Callable[..., On | None], State]

FAILS: Final[Mapping[On, Row]] = {On.REFUSED: (do.drop, State.ENDED), On.IMPOSSIBLE: (do.stop, State.ENDED)}

TABLE: Final[Mapping[State, Mapping[On, Row]]] = {
    State.READING: {
        On.READ: (do.judge, State.READING),
        On.GAP: (do.read_anew, State.READING),
        On.UNCLAIMED: (do.ask_pids, State.CLAIMING),
        On.OUTRANKED: (do.back_off, State.ENDED),
        On.OTHER_CODE: (do.wait_for_goodbye, State.AWAITING),
        On.AT_WORK: (do.wait_for_its_end, State.AWAITING),
        On.SPENT: (do.ask_pids, State.SUCCEEDING),
        On.FREE: (do.take_over, State.TAKING_OVER),
        On.IMPOSSIBLE: (do.stop, State.ENDED),
    },
    State.CLAIMING: {
        On.GRANTED: (do.claim, State.CLAIMING),
        On.CLAIMED: (do.read, State.READING),
    },
    State.SUCCEEDING: {
        On.GRANTED: (do.take_over, State.TAKING_OVER),
    },
    State.AWAITING: {
        On.READ: (do.judge, State.READING),
    },
    State.TAKING_OVER: {
        On.READ: (do.keep, State.TAKING_OVER),
        On.STORED: (do.judge_what_was_read, State.CATCHING_UP),
        **FAILS,
    },
    State.CATCHING_UP: {
        On.READ: (do.judge_take_over, State.CATCHING_UP),
        On.OTHERS: (do.drop, State.ENDED),
        On.GAP: (do.read_anew, State.CATCHING_UP),
        On.SUCCESSOR: (do.drop, State.ENDED),
        On.OTHER_CODE: (do.nothing, State.YIELDING),
        On.OWN: (do.restore, State.WORKING),
        On.IMPOSSIBLE: (do.stop, State.ENDED),
    },
    State.YIELDING: {
        On.DUE: (do.restore, State.WORKING),
    },
    State.WORKING: {
        On.STORED: (do.note_commit, State.WORKING),
        On.COMMIT_DUE: (do.finish_files, State.DRAINING),
        **FAILS,
    },
    State.DRAINING: {
        On.DRAINED: (do.commit, State.DRAINING),
        On.PLANNED: (do.nothing, State.PLANNING),
        On.COMMITTED: (do.nothing, State.WORKING),
        On.LAST: (do.nothing, State.LEAVING),
        On.LEFT: (do.say_goodbye, State.LEAVING),
        **FAILS,
    },
    State.PLANNING: {
        On.STORED: (do.note_commit, State.WORKING),
        **FAILS,
    },
    State.LEAVING: {
        On.STORED: (do.leave, State.ENDED),
        **FAILS,
    },
    State.ENDED: {},
}


def happen(holding: Holding, event: On, *about: object) -> None:
    """Does what the table says, and what follows from it. To what has ended nothing happens any more."""
    follows: On | None = event
    while follows is not None and holding.state is not State.ENDED:
        action, holding.state = TABLE[holding.state][follows]
        follows = action(holding, *about)
        about = ()
