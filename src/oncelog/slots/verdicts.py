"""The meaning of a broker's answer to one batch: is it stored, may it be sent again, may it be in the log all the same?

Kafka sorts errors into retriable and final. A sender that must never guess asks a second question: may the attempt have
been appended? With acks=all a broker appends first and waits then, so nothing that it can say while it waits proves
absence: also not "I am not the leader", which it says when it lost the partition while it waited.
"""

from typing import Final, NamedTuple

from oncelog.error_codes import ErrorCodes as Code
from oncelog.slots.states import Event


class Verdict(NamedTuple):
    event: Event
    is_leader_stale: bool = False  # somebody else may lead by now


STORED: Final = Verdict(Event.STORED)
_ODD: Final = Verdict(Event.ODD)

_VERDICTS: Final[dict[int, Verdict]] = {
    Code.NO_ERROR: STORED,
    Code.DUPLICATE_SEQUENCE_NUMBER: STORED,
    Code.INVALID_MSG: Verdict(Event.AGAIN),  # a CRC that got damaged on the way
    Code.LEADER_NOT_AVAILABLE: Verdict(Event.AGAIN, True),
    Code.NOT_ENOUGH_REPLICAS: Verdict(Event.AGAIN),
    Code.FENCED_LEADER_EPOCH: Verdict(Event.AGAIN, True),
    Code.UNKNOWN_LEADER_EPOCH: Verdict(Event.AGAIN, True),
    Code.UNKNOWN_TOPIC_ID: Verdict(Event.AGAIN, True),
    Code.THROTTLING_QUOTA_EXCEEDED: Verdict(Event.AGAIN),
    Code.BROKER_NOT_AVAILABLE: Verdict(Event.AGAIN, True),
    Code.COORDINATOR_LOAD_IN_PROGRESS: Verdict(Event.AGAIN),
    Code.CONCURRENT_TRANSACTIONS: Verdict(Event.AGAIN),
    Code.UNKNOWN_TOPIC_OR_PART: Verdict(Event.UNSURE, True),
    Code.NOT_LEADER_FOR_PARTITION: Verdict(Event.UNSURE, True),
    Code.REQUEST_TIMED_OUT: Verdict(Event.UNSURE),
    Code.REPLICA_NOT_AVAILABLE: Verdict(Event.UNSURE, True),
    Code.NETWORK_EXCEPTION: Verdict(Event.UNSURE, True),
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Verdict(Event.UNSURE),
    Code.KAFKA_STORAGE_ERROR: Verdict(Event.UNSURE, True),
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict(Event.DISPUTED),
    Code.UNKNOWN_PRODUCER_ID: Verdict(Event.DISPUTED),
    Code.INVALID_PRODUCER_ID_MAPPING: Verdict(Event.DISPUTED),
    Code.INVALID_PRODUCER_EPOCH: Verdict(Event.FENCED),
    Code.PRODUCER_FENCED: Verdict(Event.FENCED),
    Code.MSG_SIZE_TOO_LARGE: Verdict(Event.TOO_LARGE),
    Code.INVALID_MSG_SIZE: Verdict(Event.REFUSED),
    Code.RECORD_LIST_TOO_LARGE: Verdict(Event.TOO_LARGE),
    Code.TOPIC_EXCEPTION: Verdict(Event.REFUSED),
    Code.INVALID_REQUIRED_ACKS: Verdict(Event.REFUSED),
    Code.TOPIC_AUTHORIZATION_FAILED: Verdict(Event.REFUSED),
    Code.CLUSTER_AUTHORIZATION_FAILED: Verdict(Event.REFUSED),
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict(Event.REFUSED),
    Code.INVALID_TIMESTAMP: Verdict(Event.REFUSED),
    Code.UNSUPPORTED_VERSION: Verdict(Event.REFUSED),
    Code.INVALID_REQUEST: Verdict(Event.REFUSED),
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict(Event.REFUSED),
    Code.POLICY_VIOLATION: Verdict(Event.REFUSED),
    Code.UNSUPPORTED_COMPRESSION_TYPE: Verdict(Event.REFUSED),
    Code.INVALID_RECORD: Verdict(Event.REFUSED),
    Code.INVALID_TXN_STATE: Verdict(Event.REFUSED),
}


def verdict_of(code: int) -> Verdict:
    """An error that is not known proves nothing."""
    return _VERDICTS.get(code, _ODD)
