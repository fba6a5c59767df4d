"""The states of a partition with open batches, and the events that can happen to it. `table.py` says what follows."""

from enum import IntEnum


class State(IntEnum):
    SENDING = 0
    DRAINING = 1  # something failed; all that is in flight comes back first
    LOOKING_UP = 2  # the log is being asked
    SETTLING = 3  # the log will be asked when nothing can be under way any more
    STOPPED = 4  # another process has taken over, or the slots cannot be filled as they must be


class Event(IntEnum):
    # a batch's request has ended
    STORED = 0
    AGAIN = 1  # this attempt was not appended; the next one may be
    UNSURE = 2  # to be sent again; this attempt may have been appended
    LOST = 3  # no answer will come
    UNSENT = 4  # it never left
    UNCHECKED = 5  # it never left: the connection is a new one, so what was known must be asked again
    DISPUTED = 6  # refused because of its sequence
    FENCED = 7  # a newer generation writes here
    TOO_LARGE = 8
    REFUSED = 9  # for good; not appended
    ODD = 10  # for good, and it may have been appended
    LATE = 11  # acknowledged, when the broker may have forgotten who filled the slots before
    LANDED = 12  # and it was the last one in flight

    # what is open, judged when nothing is in flight
    IN_PLACE = 13  # may be sent again in the same slots
    DOUBTFUL = 14  # may be stored, and cannot be sent again before that is known
    MOVABLE = 15  # is not stored nor can be, so it gets new slots
    SPENT = 16  # the same, and the identity cannot go on
    EARLY = 17  # an attempt may still be under way, so "not there" proves nothing yet

    # before something is sent
    SILENCE = 18  # too long: others may have passed
    LEASE_OVER = 19  # with batches open under it
    LEASE_LEFT = 20  # with nothing open under it

    # answers, times, users
    FOUND = 21
    UNKNOWABLE = 22  # the log cannot tell
    TWICE = 23  # a slot stands there twice
    DUE = 24  # nothing can be under way any more
    GIVEN_UP = 25  # a batch that took too long, or that its user purges
    UNFILLED = 26  # a slot stays empty that others count on
    RESUMED = 27  # as a saved producer


# By themselves for what runs once a batch: before Python 3.12 a member costs a call to look up in its class.
SENDING, DRAINING, LOOKING_UP, SETTLING, STOPPED = State
STORED = Event.STORED
