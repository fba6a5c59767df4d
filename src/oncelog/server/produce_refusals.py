"""The answers for batches that are not appended, by the refusal of the log or of the look into them."""

from typing import Final

from oncelog.producers.decision import Decision
from oncelog.records.errors import BadBatchKind
from oncelog.server.errors import ErrorCode

OF_DECISION: Final = {
    Decision.OUT_OF_ORDER: (ErrorCode.out_of_order_sequence_number, None),
    Decision.UNKNOWN_PRODUCER: (
        ErrorCode.unknown_producer_id,
        "the lease expired, never wrote to this partition, or was never granted",
    ),
    Decision.FENCED: (ErrorCode.invalid_producer_epoch, None),
    # Kafka has no word for this; the clients' meaning of it is right: nothing was appended, try again.
    Decision.FULL: (
        ErrorCode.not_enough_replicas,
        "no room for another live producer; see oncelog.producer.kafka.entries and oncelog.max.producer.kafka.entries",
    ),
    Decision.DUPLICATE_FORGOTTEN: (ErrorCode.duplicate_sequence_number, None),
    Decision.IN_TRANSACTION: (
        ErrorCode.invalid_txn_state,
        "the producer's transaction is open, and this is outside of it",
    ),
}
# Of all errors the one that every client takes for final: none sends the batch again, or goes on under this pid.
OF_ANOTHERS_PID: Final = ErrorCode.cluster_authorization_failed, "the producer's pid was granted to another principal"
OF_BAD_BATCH: Final = {
    BadBatchKind.CORRUPT: ErrorCode.corrupt_message,
    BadBatchKind.INVALID: ErrorCode.invalid_record,
    BadBatchKind.OLD_FORMAT: ErrorCode.invalid_record,
    BadBatchKind.UNKNOWN_CODEC: ErrorCode.unsupported_compression_type,
    BadBatchKind.TIMESTAMP_TYPE: ErrorCode.invalid_timestamp,
    BadBatchKind.TRANSACTIONAL: ErrorCode.transactional_id_authorization_failed,
}
