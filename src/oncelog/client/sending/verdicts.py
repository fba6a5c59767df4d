"""What a broker's answer to one batch means: is it stored, may it be sent again, may it be in the log all the same?

Kafka sorts errors into retriable and final. A sender that must never guess asks a second question: may the attempt have
been appended? With acks=all a broker appends first and waits then, so nothing that it can say while it waits proves
absence: also not "I am not the leader", which it says when it lost the partition while it waited.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from oncelog.client.error_codes import ErrorCodes as Code


class Kind(IntEnum):
    STORED = 0
    RETRY = 1  # this attempt was not appended
    UNSURE = 2  # to be sent again; this attempt may have been appended
    SEQUENCE = 3  # refused because of its sequence, or since nothing is known of its pid
    FENCED = 4  # a newer generation writes here
    TOO_LARGE = 5
    REFUSED = 6  # for good; not appended
    ODD = 7  # for good, and it may have been appended


class Verdict(NamedTuple):
    kind: Kind
    is_leader_stale: bool = False  # somebody else may lead by now


STORED: Final = Verdict(Kind.STORED)
_ODD: Final = Verdict(Kind.ODD)

_VERDICTS: Final[dict[int, Verdict]] = {
    Code.NO_ERROR: STORED,
    Code.DUPLICATE_SEQUENCE_NUMBER: STORED,
    Code.INVALID_MSG: Verdict(Kind.RETRY),  # a CRC that got damaged on the way
    Code.LEADER_NOT_AVAILABLE: Verdict(Kind.RETRY, True),
    Code.NOT_ENOUGH_REPLICAS: Verdict(Kind.RETRY),
    Code.FENCED_LEADER_EPOCH: Verdict(Kind.RETRY, True),
    Code.UNKNOWN_LEADER_EPOCH: Verdict(Kind.RETRY, True),
    Code.UNKNOWN_TOPIC_ID: Verdict(Kind.RETRY, True),
    Code.THROTTLING_QUOTA_EXCEEDED: Verdict(Kind.RETRY),
    Code.BROKER_NOT_AVAILABLE: Verdict(Kind.RETRY, True),
    Code.COORDINATOR_LOAD_IN_PROGRESS: Verdict(Kind.RETRY),
    Code.CONCURRENT_TRANSACTIONS: Verdict(Kind.RETRY),
    Code.UNKNOWN_TOPIC_OR_PART: Verdict(Kind.UNSURE, True),
    Code.NOT_LEADER_FOR_PARTITION: Verdict(Kind.UNSURE, True),
    Code.REQUEST_TIMED_OUT: Verdict(Kind.UNSURE),
    Code.REPLICA_NOT_AVAILABLE: Verdict(Kind.UNSURE, True),
    Code.NETWORK_EXCEPTION: Verdict(Kind.UNSURE, True),
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Verdict(Kind.UNSURE),
    Code.KAFKA_STORAGE_ERROR: Verdict(Kind.UNSURE, True),
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict(Kind.SEQUENCE),
    Code.UNKNOWN_PRODUCER_ID: Verdict(Kind.SEQUENCE),
    Code.INVALID_PRODUCER_ID_MAPPING: Verdict(Kind.SEQUENCE),
    Code.INVALID_PRODUCER_EPOCH: Verdict(Kind.FENCED),
    Code.PRODUCER_FENCED: Verdict(Kind.FENCED),
    Code.MSG_SIZE_TOO_LARGE: Verdict(Kind.TOO_LARGE),
    Code.INVALID_MSG_SIZE: Verdict(Kind.REFUSED),
    Code.RECORD_LIST_TOO_LARGE: Verdict(Kind.TOO_LARGE),
    Code.TOPIC_EXCEPTION: Verdict(Kind.REFUSED),
    Code.INVALID_REQUIRED_ACKS: Verdict(Kind.REFUSED),
    Code.TOPIC_AUTHORIZATION_FAILED: Verdict(Kind.REFUSED),
    Code.CLUSTER_AUTHORIZATION_FAILED: Verdict(Kind.REFUSED),
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict(Kind.REFUSED),
    Code.INVALID_TIMESTAMP: Verdict(Kind.REFUSED),
    Code.UNSUPPORTED_VERSION: Verdict(Kind.REFUSED),
    Code.INVALID_REQUEST: Verdict(Kind.REFUSED),
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict(Kind.REFUSED),
    Code.POLICY_VIOLATION: Verdict(Kind.REFUSED),
    Code.UNSUPPORTED_COMPRESSION_TYPE: Verdict(Kind.REFUSED),
    Code.INVALID_RECORD: Verdict(Kind.REFUSED),
    Code.INVALID_TXN_STATE: Verdict(Kind.REFUSED),
}


def verdict_of(code: int) -> Verdict:
    """An error that nobody foresaw proves nothing."""
    return _VERDICTS.get(code, _ODD)
