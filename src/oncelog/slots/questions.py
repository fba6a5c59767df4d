"""The questions of a resume and a look-up to brokers and logs, the possible answers, and the ends. Their tables, in
`resuming.py` and `standing.py`, say what follows from what."""

from enum import Enum


class Ask(Enum):
    FENCE = "call `resume_pid`"
    MEMORY = "ask `DescribeProducers`"
    WATERMARK = "wait until all that the leader has lies below the high watermark"
    LOG = "read the log from the known offset on, up to the high watermark"
    LOG_OF_LEASE = "read it so, through all generations of the lease"


class Says(Enum):
    UNKNOWN = "the producer is not known"
    # Of slots that are told from a saved one on.
    LEVEL = "the due slot is free"
    AHEAD = "it is filled"
    BEHIND = "a slot before it is free"
    STALE = "it is free by what should be forgotten by now"
    OTHER_EPOCH = "it is known with another epoch"
    LEASE_OVER = "the slots are as they should be, and the lease has ended"
    TO_COMPARE = "it is filled, and what fills it is to be compared before anything is sent"
    CUT = "the log ends before the saved offset"
    GONE = "the log begins behind the saved offset, and nobody remembers what was filled since"
    # Of H, the last slot of all.
    EMPTY = "no slot is filled"
    FILLED = "H, and where the batches may lie is known"
    UNPLACED = "H, and nobody knows where the batches lie"
    OLDER_EPOCH = "it is known with an older epoch: ours has not come there"
    NEWER_EPOCH = "it is known with a newer epoch"
    COUNTS = "all that is known to be filled lies below the high watermark"
    MAY_VANISH = "more is filled than lies below the high watermark"


class End(Enum):
    IN_PLACE = "go on under the same identity"
    ANOTHER_LEASE = "close the span, and go on under another lease"
    FOUND = "that is H"
    ASK_AGAIN = "it may still be stored, or vanish: begin again in a moment"
    REFUSED = "it cannot be told what was written"
