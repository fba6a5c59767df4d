"""The states of a cell, and the events that can happen to it. `table.py` says what follows."""

from enum import IntEnum


class State(IntEnum):
    READING = 0  # the journal
    CLAIMING = 1  # nobody has
    SUCCEEDING = 2  # the journal pid has no epoch left: another is asked for
    AWAITING = 3  # holders with other code may still send, and may say goodbye
    TAKING_OVER = 4  # the first batch is under way
    CATCHING_UP = 5  # it is there; what stands before it is read
    YIELDING = 6  # holders with other code that were there before may still send
    PLANNING = 7  # a plan is under way, and nothing is sent before it is there
    WORKING = 8
    DRAINING = 9  # no more input is taken until all that was sent is acknowledged
    LEAVING = 10  # goodbye is under way
    ENDED = 11


class Event(IntEnum):
    # what arrives
    READ = 0  # the journal was
    GRANTED = 1  # pids
    CLAIMED = 2
    DUE = 3  # nobody with other code sends any more
    STORED = 4  # a journal batch is
    REFUSED = 5  # it is not, or may not be, or an output is not

    # what the journal says, before the take-over
    UNCLAIMED = 6
    OUTRANKED = 7  # a newer tenancy has it
    OTHER_CODE = 8
    AT_WORK = 9  # the one before it still is, and is about to say goodbye
    SPENT = 10  # the newest journal pid has only its last epoch left
    FREE = 11

    # what it says behind the take-over
    OTHERS = 12  # somebody else's stands there
    GAP = 13  # compaction has taken something from what was read before
    SUCCESSOR = 14  # it was that of a successor's name, and no holder's
    OWN = 15

    # work
    COMMIT_DUE = 16
    DRAINED = 17
    PLANNED = 18  # nothing is sent before the commit is there
    COMMITTED = 19  # work goes on while the commit is under way
    LAST = 20  # goodbye is in the commit
    LEFT = 21  # nothing is to be committed
    IMPOSSIBLE = 22  # a person has to look at it
