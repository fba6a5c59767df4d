"""The decision of a partition about a batch that names its producer."""

from enum import IntEnum


class Decision(IntEnum):
    APPEND = 0
    DUPLICATE = 1  # all of it is in the log; detail: its base offset, -1 when no longer known
    TRIM = 2  # the first records are in the log; detail: how many to drop before appending the rest
    OUT_OF_ORDER = 3
    UNKNOWN_PRODUCER = 4
    FENCED = 5  # an older generation
    FULL = 6  # no room for a new Kafka pid without evicting an active one; retriable
    DUPLICATE_FORGOTTEN = 7  # a Kafka pid's batch, surely in the log, older than the batches remembered
    IN_TRANSACTION = 8  # a batch outside of the transaction that its producer has open here
    COORDINATOR_FENCED = 9  # a marker by a coordinator that was followed by another one


Judgement = tuple[Decision, int]
APPEND: Judgement = (Decision.APPEND, 0)
