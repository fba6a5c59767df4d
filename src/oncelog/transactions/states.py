"""The states of a transactional id, and what each event makes of each: one table, as Kafka's coordinator answers.

    Empty            no transaction since its producer was initialised
    Ongoing          partitions were added
    PrepareCommit    it is decided; markers are on their way to the partitions
    PrepareAbort
    CompleteCommit   every partition has its marker
    CompleteAbort
    Dead             its time is over
    PrepareEpochFence   the next step aborts, for another producer or because its time is over; never stored

An event is judged after pid and epoch were found to fit (see `machine.py`). Clients of KIP-890's second version know by
the epoch whether they ask again: each end raises it. For the others an end that is asked again looks like the first.
"""

from enum import Enum, IntEnum
from typing import Final, NamedTuple


class State(IntEnum):
    """The numbers are those that are stored, as Kafka stores them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def told(self) -> str:
        """The name that clients are told: PrepareCommit."""
        return self.name.title().replace("_", "")


class Event(Enum):
    INIT = "its producer is initialised"
    ADD = "partitions are added"
    VERIFY = "a broker asks whether partitions were added"
    COMMIT = "it is to be committed"
    ABORT = "it is to be aborted"
    COMMIT_RAISING = "it is to be committed, and the epoch raised"
    ABORT_RAISING = "it is to be aborted, and the epoch raised"
    COMMIT_AGAIN = "the same as before, by the epoch of before"
    ABORT_AGAIN = "the same as before, by the epoch of before, or for abort"
    MARKED = "every partition has its marker"
    EXPIRE = "nobody has used it for very long"


class Refusal(Enum):
    """Refusals, by the names of Kafka's errors."""

    CONCURRENT_TRANSACTIONS = "concurrent_transactions"
    INVALID_PID_MAPPING = "invalid_producer_id_mapping"
    INVALID_REQUEST = "invalid_request"
    INVALID_STATE = "invalid_txn_state"
    FENCED = "producer_fenced"
    ABORTABLE = "transaction_abortable"


class To(NamedTuple):
    """The next state; whatever else changes is for the machine."""

    state: State


class Done(Enum):
    NOTHING_TO_DO = "it is so already"


Outcome = To | Refusal | Done

DONE: Final = Done.NOTHING_TO_DO
_CONCURRENT: Final = Refusal.CONCURRENT_TRANSACTIONS
_INVALID: Final = Refusal.INVALID_STATE
_FENCED: Final = Refusal.FENCED
_E, _O, _PC, _PA, _CC, _CA, _D = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
    State.DEAD,
)

TABLE: Final[dict[Event, dict[State, Outcome]]] = {
    Event.INIT: {
        _E: To(_E), _O: To(State.PREPARE_EPOCH_FENCE), _PC: _CONCURRENT, _PA: _CONCURRENT, _CC: To(_E), _CA: To(_E),
    },
    Event.ADD: {_E: To(_O), _O: To(_O), _PC: _CONCURRENT, _PA: _CONCURRENT, _CC: To(_O), _CA: To(_O)},
    Event.VERIFY: {_E: DONE, _O: DONE, _PC: _CONCURRENT, _PA: _CONCURRENT, _CC: DONE, _CA: DONE},
    Event.COMMIT: {_E: _INVALID, _O: To(_PC), _PC: _CONCURRENT, _PA: _INVALID, _CC: DONE, _CA: _INVALID},
    Event.ABORT: {_E: _INVALID, _O: To(_PA), _PC: _INVALID, _PA: _CONCURRENT, _CC: _INVALID, _CA: DONE},
    Event.COMMIT_RAISING: {_E: _INVALID, _O: To(_PC), _PC: _FENCED, _PA: _FENCED, _CC: _INVALID, _CA: _INVALID},
    Event.ABORT_RAISING: {_E: To(_PA), _O: To(_PA), _PC: _FENCED, _PA: _FENCED, _CC: To(_PA), _CA: To(_PA)},
    Event.COMMIT_AGAIN: {_E: _FENCED, _O: _FENCED, _PC: _CONCURRENT, _PA: _INVALID, _CC: DONE, _CA: _INVALID},
    Event.ABORT_AGAIN: {_E: _FENCED, _O: _FENCED, _PC: _INVALID, _PA: _CONCURRENT, _CC: _INVALID, _CA: DONE},
    Event.MARKED: {_E: _INVALID, _O: _INVALID, _PC: To(_CC), _PA: To(_CA), _CC: _INVALID, _CA: _INVALID},
    Event.EXPIRE: {_E: To(_D), _O: _INVALID, _PC: _INVALID, _PA: _INVALID, _CC: To(_D), _CA: To(_D)},
}  # fmt: skip


def outcome_of(event: Event, state: State) -> Outcome:
    """The outcome in the table. A transaction being expired or fenced is between two states, and everybody waits."""
    return TABLE[event].get(state, _CONCURRENT)
