"""librdkafka's error numbers, their names and what they say; those from -1 up are Kafka's own.

Numbers, names and words are what users of librdkafka's clients match on and search for, so they are the same here; a
test compares them one by one. Kafka's errors that librdkafka has no name for are added at the end.
"""

from typing import Final


class ErrorCodes:
    """The numbers by name, as attributes of KafkaError."""

    UNKNOWN: Final = -1
    NO_ERROR: Final = 0
    OFFSET_OUT_OF_RANGE: Final = 1
    INVALID_MSG: Final = 2
    UNKNOWN_TOPIC_OR_PART: Final = 3
    INVALID_MSG_SIZE: Final = 4
    LEADER_NOT_AVAILABLE: Final = 5
    NOT_LEADER_FOR_PARTITION: Final = 6
    REQUEST_TIMED_OUT: Final = 7
    BROKER_NOT_AVAILABLE: Final = 8
    REPLICA_NOT_AVAILABLE: Final = 9
    MSG_SIZE_TOO_LARGE: Final = 10
    STALE_CTRL_EPOCH: Final = 11
    OFFSET_METADATA_TOO_LARGE: Final = 12
    NETWORK_EXCEPTION: Final = 13
    COORDINATOR_LOAD_IN_PROGRESS: Final = 14
    COORDINATOR_NOT_AVAILABLE: Final = 15
    NOT_COORDINATOR: Final = 16
    TOPIC_EXCEPTION: Final = 17
    RECORD_LIST_TOO_LARGE: Final = 18
    NOT_ENOUGH_REPLICAS: Final = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
    INVALID_REQUIRED_ACKS: Final = 21
    ILLEGAL_GENERATION: Final = 22
    INCONSISTENT_GROUP_PROTOCOL: Final = 23
    INVALID_GROUP_ID: Final = 24
    UNKNOWN_MEMBER_ID: Final = 25
    INVALID_SESSION_TIMEOUT: Final = 26
    REBALANCE_IN_PROGRESS: Final = 27
    INVALID_COMMIT_OFFSET_SIZE: Final = 28
    TOPIC_AUTHORIZATION_FAILED: Final = 29
    GROUP_AUTHORIZATION_FAILED: Final = 30
    CLUSTER_AUTHORIZATION_FAILED: Final = 31
    INVALID_TIMESTAMP: Final = 32
    UNSUPPORTED_SASL_MECHANISM: Final = 33
    ILLEGAL_SASL_STATE: Final = 34
    UNSUPPORTED_VERSION: Final = 35
    TOPIC_ALREADY_EXISTS: Final = 36
    INVALID_PARTITIONS: Final = 37
    INVALID_REPLICATION_FACTOR: Final = 38
    INVALID_REPLICA_ASSIGNMENT: Final = 39
    INVALID_CONFIG: Final = 40
    NOT_CONTROLLER: Final = 41
    INVALID_REQUEST: Final = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT: Final = 43
    POLICY_VIOLATION: Final = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
    DUPLICATE_SEQUENCE_NUMBER: Final = 46
    INVALID_PRODUCER_EPOCH: Final = 47
    INVALID_TXN_STATE: Final = 48
    INVALID_PRODUCER_ID_MAPPING: Final = 49
    INVALID_TRANSACTION_TIMEOUT: Final = 50
    CONCURRENT_TRANSACTIONS: Final = 51
    TRANSACTION_COORDINATOR_FENCED: Final = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
    SECURITY_DISABLED: Final = 54
    OPERATION_NOT_ATTEMPTED: Final = 55
    KAFKA_STORAGE_ERROR: Final = 56
    LOG_DIR_NOT_FOUND: Final = 57
    SASL_AUTHENTICATION_FAILED: Final = 58
    UNKNOWN_PRODUCER_ID: Final = 59
    REASSIGNMENT_IN_PROGRESS: Final = 60
    DELEGATION_TOKEN_AUTH_DISABLED: Final = 61
    DELEGATION_TOKEN_NOT_FOUND: Final = 62
    DELEGATION_TOKEN_OWNER_MISMATCH: Final = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: Final = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED: Final = 65
    DELEGATION_TOKEN_EXPIRED: Final = 66
    INVALID_PRINCIPAL_TYPE: Final = 67
    NON_EMPTY_GROUP: Final = 68
    GROUP_ID_NOT_FOUND: Final = 69
    FETCH_SESSION_ID_NOT_FOUND: Final = 70
    INVALID_FETCH_SESSION_EPOCH: Final = 71
    LISTENER_NOT_FOUND: Final = 72
    TOPIC_DELETION_DISABLED: Final = 73
    FENCED_LEADER_EPOCH: Final = 74
    UNKNOWN_LEADER_EPOCH: Final = 75
    UNSUPPORTED_COMPRESSION_TYPE: Final = 76
    STALE_BROKER_EPOCH: Final = 77
    OFFSET_NOT_AVAILABLE: Final = 78
    MEMBER_ID_REQUIRED: Final = 79
    PREFERRED_LEADER_NOT_AVAILABLE: Final = 80
    GROUP_MAX_SIZE_REACHED: Final = 81
    FENCED_INSTANCE_ID: Final = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE: Final = 83
    ELECTION_NOT_NEEDED: Final = 84
    NO_REASSIGNMENT_IN_PROGRESS: Final = 85
    GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
    INVALID_RECORD: Final = 87
    UNSTABLE_OFFSET_COMMIT: Final = 88
    THROTTLING_QUOTA_EXCEEDED: Final = 89
    PRODUCER_FENCED: Final = 90
    RESOURCE_NOT_FOUND: Final = 91
    DUPLICATE_RESOURCE: Final = 92
    UNACCEPTABLE_CREDENTIAL: Final = 93
    INCONSISTENT_VOTER_SET: Final = 94
    INVALID_UPDATE_VERSION: Final = 95
    FEATURE_UPDATE_FAILED: Final = 96
    PRINCIPAL_DESERIALIZATION_FAILURE: Final = 97
    UNKNOWN_TOPIC_ID: Final = 100
    INCONSISTENT_TOPIC_ID: Final = 103
    FENCED_MEMBER_EPOCH: Final = 110
    UNRELEASED_INSTANCE_ID: Final = 111
    UNSUPPORTED_ASSIGNOR: Final = 112
    STALE_MEMBER_EPOCH: Final = 113
    MISMATCHED_ENDPOINT_TYPE: Final = 114
    UNSUPPORTED_ENDPOINT_TYPE: Final = 115
    UNKNOWN_CONTROLLER_ID: Final = 116
    UNKNOWN_SUBSCRIPTION_ID: Final = 117
    TELEMETRY_TOO_LARGE: Final = 118
    INVALID_REGISTRATION: Final = 119
    TRANSACTION_ABORTABLE: Final = 120
    INVALID_RECORD_STATE: Final = 121
    SHARE_SESSION_NOT_FOUND: Final = 122
    INVALID_SHARE_SESSION_EPOCH: Final = 123
    FENCED_STATE_EPOCH: Final = 124
    INVALID_VOTER_KEY: Final = 125
    DUPLICATE_VOTER: Final = 126
    VOTER_NOT_FOUND: Final = 127
    INVALID_REGULAR_EXPRESSION: Final = 128
    REBOOTSTRAP_REQUIRED: Final = 129
    STREAMS_INVALID_TOPOLOGY: Final = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH: Final = 131
    STREAMS_TOPOLOGY_FENCED: Final = 132
    SHARE_SESSION_LIMIT_REACHED: Final = 133
    _DESTROY_BROKER: Final = -137
    _INVALID_DIFFERENT_RECORD: Final = -138
    _LOG_TRUNCATION: Final = -139
    _AUTO_OFFSET_RESET: Final = -140
    _NOOP: Final = -141
    _ASSIGNMENT_LOST: Final = -142
    _APPLICATION: Final = -143
    _FENCED: Final = -144
    _NOT_CONFIGURED: Final = -145
    _UNKNOWN_BROKER: Final = -146
    _MAX_POLL_EXCEEDED: Final = -147
    _GAPLESS_GUARANTEE: Final = -148
    _INCONSISTENT: Final = -149
    _FATAL: Final = -150
    _PURGE_INFLIGHT: Final = -151
    _PURGE_QUEUE: Final = -152
    _RETRY: Final = -153
    _INVALID_TYPE: Final = -154
    _UNDERFLOW: Final = -155
    _NOENT: Final = -156
    _READ_ONLY: Final = -157
    _PARTIAL: Final = -158
    _VALUE_DESERIALIZATION: Final = -159
    _KEY_DESERIALIZATION: Final = -160
    _VALUE_SERIALIZATION: Final = -161
    _KEY_SERIALIZATION: Final = -162
    _INTR: Final = -163
    _WAIT_CACHE: Final = -164
    _UNSUPPORTED_FEATURE: Final = -165
    _TIMED_OUT_QUEUE: Final = -166
    _OUTDATED: Final = -167
    _NO_OFFSET: Final = -168
    _AUTHENTICATION: Final = -169
    _NOT_IMPLEMENTED: Final = -170
    _UNKNOWN_PROTOCOL: Final = -171
    _STATE: Final = -172
    _CONFLICT: Final = -173
    _REVOKE_PARTITIONS: Final = -174
    _ASSIGN_PARTITIONS: Final = -175
    _EXISTING_SUBSCRIPTION: Final = -176
    _PREV_IN_PROGRESS: Final = -177
    _IN_PROGRESS: Final = -178
    _UNKNOWN_GROUP: Final = -179
    _WAIT_COORD: Final = -180
    _SSL: Final = -181
    _NODE_UPDATE: Final = -182
    _ISR_INSUFF: Final = -183
    _QUEUE_FULL: Final = -184
    _TIMED_OUT: Final = -185
    _INVALID_ARG: Final = -186
    _ALL_BROKERS_DOWN: Final = -187
    _UNKNOWN_TOPIC: Final = -188
    _FS: Final = -189
    _UNKNOWN_PARTITION: Final = -190
    _PARTITION_EOF: Final = -191
    _MSG_TIMED_OUT: Final = -192
    _RESOLVE: Final = -193
    _CRIT_SYS_RESOURCE: Final = -194
    _TRANSPORT: Final = -195
    _FAIL: Final = -196
    _DESTROY: Final = -197
    _BAD_COMPRESSION: Final = -198
    _BAD_MSG: Final = -199
    SNAPSHOT_NOT_FOUND: Final = 98
    POSITION_OUT_OF_RANGE: Final = 99
    DUPLICATE_BROKER_REGISTRATION: Final = 101
    BROKER_ID_NOT_REGISTERED: Final = 102
    INCONSISTENT_CLUSTER_ID: Final = 104
    TRANSACTIONAL_ID_NOT_FOUND: Final = 105
    FETCH_SESSION_TOPIC_ID_ERROR: Final = 106
    INELIGIBLE_REPLICA: Final = 107
    NEW_LEADER_ELECTED: Final = 108
    OFFSET_MOVED_TO_TIERED_STORAGE: Final = 109


_LOCAL = {
    -137: "Local: Broker handle destroyed without termination",
    -138: "Local: an invalid record in the same batch caused the failure of this message too",
    -139: "Local: Partition log truncation detected",
    -140: "Local: No offset to automatically reset to",
    -141: "Local: No operation performed",
    -142: "Local: Group partition assignment lost",
    -143: "Local: Application generated error",
    -144: "Local: This instance has been fenced by a newer instance",
    -145: "Local: Functionality not configured",
    -146: "Local: Unknown broker",
    -147: "Local: Maximum application poll interval (max.poll.interval.ms) exceeded",
    -148: "Local: Gap-less ordering would not be guaranteed if proceeding",
    -149: "Local: Inconsistent state",
    -150: "Local: Fatal error",
    -151: "Local: Purged in flight",
    -152: "Local: Purged in queue",
    -153: "Local: Retry operation",
    -154: "Local: Invalid type",
    -155: "Local: Read underflow",
    -156: "Local: No such entry",
    -157: "Local: Read-only object",
    -158: "Local: Partial response",
    -159: "Local: Value deserialization error",
    -160: "Local: Key deserialization error",
    -161: "Local: Value serialization error",
    -162: "Local: Key serialization error",
    -163: "Local: Operation interrupted",
    -164: "Local: Awaiting cache update",
    -165: "Local: Required feature not supported by broker",
    -166: "Local: Timed out in queue",
    -167: "Local: Outdated",
    -168: "Local: No offset stored",
    -169: "Local: Authentication failure",
    -170: "Local: Not implemented",
    -171: "Local: Unknown protocol",
    -172: "Local: Erroneous state",
    -173: "Local: Conflicting use",
    -174: "Local: Revoke partitions",
    -175: "Local: Assign partitions",
    -176: "Local: Existing subscription",
    -177: "Local: Previous operation in progress",
    -178: "Local: Operation in progress",
    -179: "Local: Unknown group",
    -180: "Local: Waiting for coordinator",
    -181: "Local: SSL error",
    -182: "Local: Broker node update",
    -183: "Local: ISR count insufficient",
    -184: "Local: Queue full",
    -185: "Local: Timed out",
    -186: "Local: Invalid argument or configuration",
    -187: "Local: All broker connections are down",
    -188: "Local: Unknown topic",
    -189: "Local: File or filesystem error",
    -190: "Local: Unknown partition",
    -191: "Broker: No more messages",
    -192: "Local: Message timed out",
    -193: "Local: Host resolution failure",
    -194: "Local: Critical system resource failure",
    -195: "Local: Broker transport failure",
    -196: "Local: Communication failure with broker",
    -197: "Local: Broker handle destroyed for termination",
    -198: "Local: Invalid compressed data",
    -199: "Local: Bad message format",
}

_BROKER = {
    -1: "Unknown broker error",
    0: "Success",
    1: "Broker: Offset out of range",
    2: "Broker: Invalid message",
    3: "Broker: Unknown topic or partition",
    4: "Broker: Invalid message size",
    5: "Broker: Leader not available",
    6: "Broker: Not leader for partition",
    7: "Broker: Request timed out",
    8: "Broker: Broker not available",
    9: "Broker: Replica not available",
    10: "Broker: Message size too large",
    11: "Broker: StaleControllerEpochCode",
    12: "Broker: Offset metadata string too large",
    13: "Broker: Broker disconnected before response received",
    14: "Broker: Coordinator load in progress",
    15: "Broker: Coordinator not available",
    16: "Broker: Not coordinator",
    17: "Broker: Invalid topic",
    18: "Broker: Message batch larger than configured server segment size",
    19: "Broker: Not enough in-sync replicas",
    20: "Broker: Message(s) written to insufficient number of in-sync replicas",
    21: "Broker: Invalid required acks value",
    22: "Broker: Specified group generation id is not valid",
    23: "Broker: Inconsistent group protocol",
    24: "Broker: Invalid group.id",
    25: "Broker: Unknown member",
    26: "Broker: Invalid session timeout",
    27: "Broker: Group rebalance in progress",
    28: "Broker: Commit offset data size is not valid",
    29: "Broker: Topic authorization failed",
    30: "Broker: Group authorization failed",
    31: "Broker: Cluster authorization failed",
    32: "Broker: Invalid timestamp",
    33: "Broker: Unsupported SASL mechanism",
    34: "Broker: Request not valid in current SASL state",
    35: "Broker: API version not supported",
    36: "Broker: Topic already exists",
    37: "Broker: Invalid number of partitions",
    38: "Broker: Invalid replication factor",
    39: "Broker: Invalid replica assignment",
    40: "Broker: Configuration is invalid",
    41: "Broker: Not controller for cluster",
    42: "Broker: Invalid request",
    43: "Broker: Message format on broker does not support request",
    44: "Broker: Policy violation",
    45: "Broker: Broker received an out of order sequence number",
    46: "Broker: Broker received a duplicate sequence number",
    47: "Broker: Producer attempted an operation with an old epoch",
    48: "Broker: Producer attempted a transactional operation in an invalid state",
    49: "Broker: Producer attempted to use a producer id which is not currently assigned to its transactional id",
    50: "Broker: Transaction timeout is larger than the maximum value allowed by the broker's "
    "max.transaction.timeout.ms",
    51: "Broker: Producer attempted to update a transaction while another concurrent operation on the same "
    "transaction was ongoing",
    52: "Broker: Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the "
    "current coordinator for a given producer",
    53: "Broker: Transactional Id authorization failed",
    54: "Broker: Security features are disabled",
    55: "Broker: Operation not attempted",
    56: "Broker: Disk error when trying to access log file on disk",
    57: "Broker: The user-specified log directory is not found in the broker config",
    58: "Broker: SASL Authentication failed",
    59: "Broker: Unknown Producer Id",
    60: "Broker: Partition reassignment is in progress",
    61: "Broker: Delegation Token feature is not enabled",
    62: "Broker: Delegation Token is not found on server",
    63: "Broker: Specified Principal is not valid Owner/Renewer",
    64: "Broker: Delegation Token requests are not allowed on this connection",
    65: "Broker: Delegation Token authorization failed",
    66: "Broker: Delegation Token is expired",
    67: "Broker: Supplied principalType is not supported",
    68: "Broker: The group is not empty",
    69: "Broker: The group id does not exist",
    70: "Broker: The fetch session ID was not found",
    71: "Broker: The fetch session epoch is invalid",
    72: "Broker: No matching listener",
    73: "Broker: Topic deletion is disabled",
    74: "Broker: Leader epoch is older than broker epoch",
    75: "Broker: Leader epoch is newer than broker epoch",
    76: "Broker: Unsupported compression type",
    77: "Broker: Broker epoch has changed",
    78: "Broker: Leader high watermark is not caught up",
    79: "Broker: Group member needs a valid member ID",
    80: "Broker: Preferred leader was not available",
    81: "Broker: Consumer group has reached maximum size",
    82: "Broker: Static consumer fenced by other consumer with same group.instance.id",
    83: "Broker: Eligible partition leaders are not available",
    84: "Broker: Leader election not needed for topic partition",
    85: "Broker: No partition reassignment is in progress",
    86: "Broker: Deleting offsets of a topic while the consumer group is subscribed to it",
    87: "Broker: Broker failed to validate record",
    88: "Broker: There are unstable offsets that need to be cleared",
    89: "Broker: Throttling quota has been exceeded",
    90: "Broker: There is a newer producer with the same transactionalId which fences the current one",
    91: "Broker: Request illegally referred to resource that does not exist",
    92: "Broker: Request illegally referred to the same resource twice",
    93: "Broker: Requested credential would not meet criteria for acceptability",
    94: "Broker: Indicates that the either the sender or recipient of a voter-only request is not one of the "
    "expected voters",
    95: "Broker: Invalid update version",
    96: "Broker: Unable to update finalized features due to server error",
    97: "Broker: Request principal deserialization failed during forwarding",
    100: "Broker: Unknown topic id",
    103: "Broker: The log's topic ID did not match the topic ID in the request",
    110: "Broker: The member epoch is fenced by the group coordinator",
    111: "Broker: The instance ID is still used by another member in the consumer group",
    112: "Broker: The assignor or its version range is not supported by the consumer group",
    113: "Broker: The member epoch is stale",
    114: "Broker: The request was sent to an endpoint of the wrong type",
    115: "Broker: This endpoint type is not supported yet",
    116: "Broker: This controller ID is not known",
    117: "Broker: Client sent a push telemetry request with an invalid or outdated subscription ID",
    118: "Broker: Client sent a push telemetry request larger than the maximum size the broker will accept",
    119: "Broker: The controller has considered the broker registration to be invalid",
    120: "Broker: The server encountered an error with the transaction",
    121: "Broker: The record state is invalid",
    122: "Broker: The share session was not found",
    123: "Broker: The share session epoch is invalid",
    124: "Broker: The share-group state epoch did not match",
    125: "Broker: The voter key doesn't match the receiving replica's key",
    126: "Broker: The voter is already part of the set of voters",
    127: "Broker: The voter is not part of the set of voters",
    128: "Broker: The regular expression is not valid",
    129: "Broker: Client metadata is stale, client should rebootstrap to obtain new metadata",
    130: "Broker: The supplied topology is invalid",
    131: "Broker: The supplied topology epoch is invalid",
    132: "Broker: The supplied topology epoch is outdated",
    133: "Broker: The limit of share sessions has been reached",
    98: "Broker: Snapshot not found",
    99: "Broker: Position out of range",
    101: "Broker: Duplicate broker registration",
    102: "Broker: Broker id not registered",
    104: "Broker: Inconsistent cluster id",
    105: "Broker: Transactional id not found",
    106: "Broker: Fetch session topic id error",
    107: "Broker: Ineligible replica",
    108: "Broker: New leader elected",
    109: "Broker: Offset moved to tiered storage",
}

TEXTS: Final[dict[int, str]] = _LOCAL | _BROKER
NAMES: Final[dict[int, str]] = {code: name for name, code in vars(ErrorCodes).items() if isinstance(code, int)}
