"""The right that each request asks for: the operation, on what, and the refusal, as in Kafka 4.3. docs/rights.md is
made from this table, and a test holds the handlers against it."""

from typing import Final, NamedTuple

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.access import Rights
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.operations import NOT_ASKED

REFUSALS: Final = {
    Resource.TOPIC: (ErrorCode.topic_authorization_failed, "Topic authorization failed."),
    Resource.GROUP: (ErrorCode.group_authorization_failed, "Group authorization failed."),
    Resource.CLUSTER: (ErrorCode.cluster_authorization_failed, "Cluster authorization failed."),
    Resource.TRANSACTIONAL_ID: (
        ErrorCode.transactional_id_authorization_failed,
        "Transactional Id authorization failed.",
    ),
}


def demand(rights: Rights, operation: Operation, resource: Resource, name: str) -> None:
    """Raises KafkaError where it may not."""
    if not rights.may(operation, resource, name):
        raise KafkaError(*REFUSALS[resource])


def demand_cluster(rights: Rights, operation: Operation) -> None:
    demand(rights, operation, Resource.CLUSTER, CLUSTER_NAME)


def may_create_topic(rights: Rights, name: str) -> bool:
    may = rights.may
    return may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME) or may(Operation.CREATE, Resource.TOPIC, name)


def cluster_operations(rights: Rights, *, is_asked: bool) -> int:
    """The operations on the cluster that a client is told it may do."""
    if not is_asked:
        return NOT_ASKED
    may_know = rights.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    return rights.operations(Resource.CLUSTER, CLUSTER_NAME) if may_know else 0


class Need(NamedTuple):
    operation: Operation
    resource: Resource
    note: str = ""


def _topic(operation: Operation, note: str = "") -> Need:
    return Need(operation, Resource.TOPIC, note)


def _group(operation: Operation, note: str = "") -> Need:
    return Need(operation, Resource.GROUP, note)


def _cluster(operation: Operation, note: str = "") -> Need:
    return Need(operation, Resource.CLUSTER, note)


def _transactional_id(operation: Operation, note: str = "") -> Need:
    return Need(operation, Resource.TRANSACTIONAL_ID, note)


WHOLE: Final = "the whole request is refused"
NEEDS: Final[dict[str, tuple[Need, ...]]] = {
    "produce": (_topic(Operation.WRITE), _transactional_id(Operation.WRITE, "of one that names it")),
    "fetch": (
        _topic(Operation.READ),
        _cluster(Operation.CLUSTER_ACTION, "from a follower, and nothing else; each topic is refused"),
    ),
    "list_offsets": (_topic(Operation.DESCRIBE),),
    "metadata": (
        _topic(Operation.DESCRIBE, "where all are asked for, the others are left out"),
        _cluster(Operation.CREATE, "or the next, for a topic that would be created"),
        _topic(Operation.CREATE, "for a topic that would be created"),
        _cluster(Operation.DESCRIBE, "for what the client may do to the cluster; else nothing is told"),
    ),
    "offset_commit": (_group(Operation.READ, "each partition is refused"), _topic(Operation.READ)),
    "offset_fetch": (
        _group(Operation.DESCRIBE),
        _topic(Operation.DESCRIBE, "where all are asked for, the others are left out"),
    ),
    "find_coordinator": (
        _group(Operation.DESCRIBE, "of a group"),
        _transactional_id(Operation.DESCRIBE, "of a transactional id"),
    ),
    "join_group": (_group(Operation.READ),),
    "heartbeat": (_group(Operation.READ),),
    "leave_group": (_group(Operation.READ),),
    "sync_group": (_group(Operation.READ),),
    "describe_groups": (_group(Operation.DESCRIBE),),
    "list_groups": (
        _cluster(Operation.DESCRIBE, "or the next, for each group"),
        _group(Operation.DESCRIBE, "the others are left out"),
    ),
    "sasl_handshake": (),
    "api_versions": (),
    "create_topics": (
        _cluster(Operation.CREATE, "or the next"),
        _topic(Operation.CREATE),
        _topic(Operation.DESCRIBE_CONFIGS, "to be told the configs; else only they are missing"),
    ),
    "delete_topics": (
        _cluster(Operation.DELETE, "or the next two"),
        _topic(Operation.DESCRIBE, "to be told the name of a topic that is named by its id"),
        _topic(Operation.DELETE),
    ),
    "delete_records": (_topic(Operation.DELETE),),
    "init_producer_id": (
        _transactional_id(Operation.WRITE, "of one that names it, and nothing else then"),
        _cluster(Operation.IDEMPOTENT_WRITE, "or the next"),
        _topic(Operation.WRITE, "for any topic at all; else CLUSTER_AUTHORIZATION_FAILED"),
    ),
    "offset_for_leader_epoch": (_cluster(Operation.CLUSTER_ACTION, "or the next"), _topic(Operation.DESCRIBE)),
    "add_partitions_to_txn": (
        _transactional_id(Operation.WRITE, "each partition is refused"),
        _topic(Operation.WRITE),
        _cluster(Operation.CLUSTER_ACTION, "from a broker, and nothing else"),
    ),
    "add_offsets_to_txn": (_transactional_id(Operation.WRITE), _group(Operation.READ)),
    "end_txn": (_transactional_id(Operation.WRITE),),
    "write_txn_markers": (
        _cluster(Operation.ALTER, "or the next"),
        _cluster(Operation.CLUSTER_ACTION, "each partition is refused"),
    ),
    "txn_offset_commit": (
        _transactional_id(Operation.WRITE, "each partition is refused"),
        _group(Operation.READ, "each partition is refused"),
        _topic(Operation.READ),
    ),
    "describe_acls": (_cluster(Operation.DESCRIBE, WHOLE),),
    "create_acls": (_cluster(Operation.ALTER, "each is refused"),),
    "delete_acls": (_cluster(Operation.ALTER, "each is refused"),),
    "describe_configs": (
        _topic(Operation.DESCRIBE_CONFIGS, "for a topic's"),
        _group(Operation.DESCRIBE_CONFIGS, "for a group's"),
        _cluster(Operation.DESCRIBE_CONFIGS, "for a broker's, and for client metrics"),
    ),
    "alter_configs": (
        _topic(Operation.ALTER_CONFIGS, "for a topic's"),
        _group(Operation.ALTER_CONFIGS, "for a group's"),
        _cluster(Operation.ALTER_CONFIGS, "for a broker's, and for client metrics"),
    ),
    "describe_log_dirs": (_cluster(Operation.DESCRIBE, WHOLE),),
    "sasl_authenticate": (),
    "create_partitions": (_topic(Operation.ALTER),),
    "delete_groups": (_group(Operation.DELETE),),
    "elect_leaders": (_cluster(Operation.ALTER, WHOLE),),
    "incremental_alter_configs": (
        _topic(Operation.ALTER_CONFIGS, "for a topic's"),
        _group(Operation.ALTER_CONFIGS, "for a group's"),
        _cluster(Operation.ALTER_CONFIGS, "for a broker's, and for client metrics"),
    ),
    "alter_partition_reassignments": (_cluster(Operation.ALTER, WHOLE),),
    "list_partition_reassignments": (_cluster(Operation.DESCRIBE, WHOLE),),
    "offset_delete": (_group(Operation.DELETE, WHOLE), _topic(Operation.READ)),
    "describe_client_quotas": (_cluster(Operation.DESCRIBE_CONFIGS, WHOLE),),
    "alter_client_quotas": (_cluster(Operation.ALTER_CONFIGS, "each is refused"),),
    "describe_user_scram_credentials": (_cluster(Operation.DESCRIBE, WHOLE),),
    "alter_user_scram_credentials": (_cluster(Operation.ALTER, "each is refused"),),
    "describe_quorum": (_cluster(Operation.DESCRIBE, WHOLE),),
    "list_config_resources": (_cluster(Operation.DESCRIBE_CONFIGS, WHOLE),),
    "describe_cluster": (
        _cluster(Operation.DESCRIBE, "for what the client may do to the cluster; else nothing is told"),
    ),
    "describe_producers": (_topic(Operation.READ),),
    "unregister_broker": (_cluster(Operation.ALTER, WHOLE),),
    "describe_transactions": (
        _transactional_id(Operation.DESCRIBE),
        _topic(Operation.DESCRIBE, "the others are left out"),
    ),
    "list_transactions": (_transactional_id(Operation.DESCRIBE, "the others are left out"),),
    "consumer_group_heartbeat": (
        _group(Operation.READ),
        _topic(Operation.DESCRIBE, "of what it names, or all is refused; what it may not know no pattern finds"),
    ),
    "consumer_group_describe": (
        _group(Operation.DESCRIBE),
        _topic(Operation.DESCRIBE, "of all that members have or are to have, or the group is refused"),
    ),
    "describe_topic_partitions": (_topic(Operation.DESCRIBE, "where all are asked for, the others are left out"),),
    "lease_pid": (_topic(Operation.WRITE),),
    "resume_pid": (_topic(Operation.WRITE),),
    "describe_leases": (_cluster(Operation.DESCRIBE, "each partition is refused"),),
}
