"""What is asked by one who has certain rights, request by request. Importing this fills the table of `rights.py`."""

from datetime import timedelta
from typing import Any

from oncelog.security.operations import Operation, Resource
from tests.peers.rights import (
    GROUP,
    HERE,
    HIDDEN_GROUP,
    HIDDEN_NOT,
    THERE_IS_NOT,
    TOPICS,
    about,
    creation,
    everything,
    is_refused,
    made_anew,
    named,
    next_number,
    partitions,
    rule,
    topic_ids,
)
from tests.raw import RawConnection, Rec, batch


@about("produce")
def write(c: RawConnection) -> object:
    records = batch([Rec(value=b"v")])
    data = [{"name": name, "partition_data": [{"index": 0, "records": records}]} for name in TOPICS]
    answer = c.call("produce", 9, acks=-1, timeout=5000, topic_data=data)
    return partitions(answer.responses, inner="partition_responses")


@about("fetch")
def read_by_name(c: RawConnection) -> object:
    wanted = [{"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]} for name in TOPICS]
    answer = c.call("fetch", 12, replica_id=-1, max_wait=0, max_bytes=1000, session_epoch=-1, topics=wanted)
    return partitions(answer.responses, name="topic")


@about("fetch")
def read_by_id(c: RawConnection) -> object:
    ids = topic_ids(c)
    wanted = [
        {"topic_id": each, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]} for each in ids.values()
    ]
    answer = c.call("fetch", 13, replica_id=-1, max_wait=0, max_bytes=1000, session_epoch=-1, topics=wanted)
    names = {topic_id: name for name, topic_id in ids.items()}
    return {names[each.topic_id]: [one.error_code.name for one in each.partitions] for each in answer.responses}


@about("fetch")
def read_as_a_follower(c: RawConnection) -> object:
    """Of a broker that there is not: of interest is whether that is looked at."""
    ids = topic_ids(c)
    wanted = [{"topic_id": each, "partitions": [{"partition": 0}]} for each in ids.values()]
    follower = {"replica_id": 7, "replica_epoch": 1}
    answer = c.call("fetch", 15, replica_state=follower, max_wait=0, max_bytes=1000, session_epoch=-1, topics=wanted)
    return sorted(is_refused(one.error_code.name) for each in answer.responses for one in each.partitions)


@about("describe_client_quotas")
def quotas(c: RawConnection) -> object:
    return c.call("describe_client_quotas", 1, components=[], strict=False).error_code.name


@about("alter_client_quotas")
def another_quota(c: RawConnection) -> object:
    entry = {"entity": [{"entity_type": "user", "entity_name": "anna"}], "ops": []}
    answer = c.call("alter_client_quotas", 1, entries=[entry], validate_only=True)
    return [each.error_code.name for each in answer.entries]


@about("describe_user_scram_credentials")
def users(c: RawConnection) -> object:
    """One by name: where all are asked for, and nobody may, Kafka 4.3 gives no answer."""
    return c.call("describe_user_scram_credentials", 0, users=[{"name": "nobody"}]).error_code.name


@about("alter_user_scram_credentials")
def a_user_less(c: RawConnection) -> object:
    """Of a user that there is not."""
    deletions = [{"name": "nobody", "mechanism": 1}]
    answer = c.call("alter_user_scram_credentials", 0, deletions=deletions, upsertions=[])
    return [each.error_code.name for each in answer.results]


@about("list_offsets")
def ends(c: RawConnection) -> object:
    wanted = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -2}]} for name in TOPICS]
    return partitions(c.call("list_offsets", 7, replica_id=-1, topics=wanted).topics)


@about("metadata")
def topics_by_name(c: RawConnection) -> object:
    asked = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
    answer = c.call("metadata", 9, topics=[{"name": name} for name in TOPICS], **asked)
    return {
        each.name: (each.error_code.name, len(each.partitions), each.topic_authorized_operations)
        for each in answer.topics
    }


@about("metadata")
def topics_by_id(c: RawConnection) -> object:
    ids = topic_ids(c)
    answer = c.call("metadata", 12, topics=[{"topic_id": each, "name": None} for each in ids.values()])
    names = {topic_id: name for name, topic_id in ids.items()}
    return {names[each.topic_id]: (each.name, each.error_code.name) for each in answer.topics}


@about("metadata")
def all_topics(c: RawConnection) -> object:
    answer = c.call("metadata", 9, topics=None)
    return sorted(each.name for each in answer.topics if each.name in TOPICS)


@about("metadata")
def the_cluster(c: RawConnection) -> object:
    return c.call("metadata", 9, topics=[], include_cluster_authorized_operations=True).cluster_authorized_operations


@about("metadata")
def topics_that_would_be_made(c: RawConnection) -> object:
    """Each time others; how it is said that they are being made differs."""
    number = next_number()
    names = [{"name": f"{kind}-new-{number}"} for kind in ("open", "hidden")]
    answer = c.call("metadata", 9, topics=names, allow_auto_topic_creation=True)
    return {each.name.partition("-")[0]: is_refused(each.error_code.name) for each in answer.topics}


@about("offset_commit")
def commit(c: RawConnection) -> object:
    offsets = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0}]} for name in TOPICS]
    found = {}
    for group in (GROUP, HIDDEN_GROUP):
        wanted = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": offsets}
        found[group] = partitions(c.call("offset_commit", 8, **wanted).topics)
    return found


@about("offset_fetch")
def committed(c: RawConnection) -> object:
    wanted = [{"name": name, "partition_indexes": [0]} for name in TOPICS]
    groups = [{"group_id": group, "topics": wanted} for group in (GROUP, HIDDEN_GROUP)]
    answer = c.call("offset_fetch", 8, groups=groups)
    return {each.group_id: (each.error_code.name, partitions(each.topics)) for each in answer.groups}


@about("offset_commit")
def commit_by_id(c: RawConnection) -> object:
    ids = topic_ids(c)
    offsets = [
        {"topic_id": each, "partitions": [{"partition_index": 0, "committed_offset": 0}]} for each in ids.values()
    ]
    wanted = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "topics": offsets}
    names = {topic_id: name for name, topic_id in ids.items()}
    answer = c.call("offset_commit", 10, **wanted)
    return {names[each.topic_id]: [one.error_code.name for one in each.partitions] for each in answer.topics}


@about("offset_fetch")
def committed_by_id(c: RawConnection) -> object:
    ids = topic_ids(c)
    wanted = [{"topic_id": each, "partition_indexes": [0]} for each in ids.values()]
    names = {topic_id: name for name, topic_id in ids.items()}
    answer = c.call("offset_fetch", 10, groups=[{"group_id": GROUP, "topics": wanted}])
    (group,) = answer.groups
    found = {names[each.topic_id]: [one.error_code.name for one in each.partitions] for each in group.topics}
    return group.error_code.name, found


@about("offset_fetch")
def all_committed(c: RawConnection) -> object:
    groups = [{"group_id": group, "topics": None} for group in (GROUP, HIDDEN_GROUP)]
    answer = c.call("offset_fetch", 8, groups=groups)
    return {each.group_id: (each.error_code.name, partitions(each.topics)) for each in answer.groups}


@about("find_coordinator")
def coordinators(c: RawConnection) -> object:
    answer = c.call("find_coordinator", 4, key_type=0, coordinator_keys=[GROUP, HIDDEN_GROUP, "hidden-no-group"])
    return {each.key: (each.error_code.name, each.node_id >= 0) for each in answer.coordinators}


@about("join_group")
def join(c: RawConnection) -> object:
    """As a member that is not known: of interest is who is told that."""
    protocols = [{"name": "range", "metadata": b""}]
    values = {
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "nobody",
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    return [c.call("join_group", 5, group_id=group, **values).error_code.name for group in (GROUP, HIDDEN_GROUP)]


@about("heartbeat")
def beat(c: RawConnection) -> object:
    values = {"generation_id": 1, "member_id": "nobody"}
    return [c.call("heartbeat", 3, group_id=group, **values).error_code.name for group in (GROUP, HIDDEN_GROUP)]


@about("leave_group")
def leave(c: RawConnection) -> object:
    members = [{"member_id": "nobody"}]
    answers = [c.call("leave_group", 3, group_id=group, members=members) for group in (GROUP, HIDDEN_GROUP)]
    return [(each.error_code.name, [one.error_code.name for one in each.members]) for each in answers]


@about("sync_group")
def sync(c: RawConnection) -> object:
    values = {"generation_id": 1, "member_id": "nobody", "assignments": []}
    return [c.call("sync_group", 3, group_id=group, **values).error_code.name for group in (GROUP, HIDDEN_GROUP)]


@about("describe_groups")
def describe_groups(c: RawConnection) -> object:
    asked = {"groups": [GROUP, HIDDEN_GROUP], "include_authorized_operations": True}
    answer = c.call("describe_groups", 5, **asked)
    return {
        each.group_id: (each.error_code.name, each.group_state, each.authorized_operations) for each in answer.groups
    }


@about("consumer_group_heartbeat")
def beat_of_the_newer_protocol(c: RawConnection) -> object:
    """As a member that is not known, of what it may know of and of what not."""
    values = {"member_id": "nobody", "member_epoch": 7, "rebalance_timeout": timedelta(seconds=1)}
    found = []
    for group in (GROUP, HIDDEN_GROUP):
        for topic in TOPICS:
            asked = values | {"group_id": group, "subscribed_topic_names": [topic], "topic_partitions": []}
            found.append(c.call("consumer_group_heartbeat", 1, **asked).error_code.name)
    return found


@about("consumer_group_describe")
def describe_groups_of_the_newer_protocol(c: RawConnection) -> object:
    asked = {"group_ids": [GROUP, HIDDEN_GROUP], "include_authorized_operations": True}
    answer = c.call("consumer_group_describe", 1, **asked)
    return {each.group_id: (each.error_code.name, each.authorized_operations) for each in answer.groups}


@about("list_groups")
def list_groups(c: RawConnection) -> object:
    answer = c.call("list_groups", 4)
    return answer.error_code.name, sorted(each.group_id for each in answer.groups)


@about("create_topics")
def create_topics(c: RawConnection) -> object:
    wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in TOPICS]
    answer = c.call("create_topics", 7, topics=wanted, timeout=10_000, validate_only=True)
    return {
        each.name: (each.error_code.name, int(each.topic_config_error_code), each.num_partitions, bool(each.configs))
        for each in answer.topics
    }


@about("delete_topics")
def delete_topics(c: RawConnection) -> object:
    """Of what is there, only the hidden one is named: it must be there for the next question, too."""
    wanted = [{"name": name, "topic_id": None} for name in (THERE_IS_NOT, HIDDEN_NOT)]
    answer = c.call("delete_topics", 6, topics=wanted, timeout=10_000)
    return named(answer.responses)


@about("delete_topics")
def delete_topics_by_id(c: RawConnection) -> object:
    ids = {name: made_anew(c, name) for name in ("open-to-go", "hidden-to-go")}
    wanted = [{"name": None, "topic_id": each} for each in ids.values()]
    answer = c.call("delete_topics", 6, topics=wanted, timeout=10_000)
    names = {topic_id: name for name, topic_id in ids.items()}
    return {names[each.topic_id]: (each.name, each.error_code.name) for each in answer.responses}


@about("delete_topics")
def delete_topics_by_name(c: RawConnection) -> object:
    names = ("open-to-go", "hidden-to-go")
    for name in names:
        made_anew(c, name)
    answer = c.call("delete_topics", 5, topic_names=names, timeout=10_000)
    return named(answer.responses)


@about("delete_records")
def delete_records(c: RawConnection) -> object:
    wanted = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in TOPICS]
    return partitions(c.call("delete_records", 2, topics=wanted, timeout=5000).topics)


@about("init_producer_id")
def pid(c: RawConnection) -> object:
    answer = c.call("init_producer_id", 4, transactional_id=None, producer_id=-1, producer_epoch=-1)
    return answer.error_code.name


@about("offset_for_leader_epoch")
def epochs(c: RawConnection) -> object:
    asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    answer = c.call(
        "offset_for_leader_epoch", 3, replica_id=-1, topics=[{"topic": name, "partitions": asked} for name in TOPICS]
    )
    return partitions(answer.topics, name="topic")


@about("describe_acls")
def describe_acls(c: RawConnection) -> object:
    answer = c.call("describe_acls", 3, **everything(host_filter=HERE))
    rules = sorted((each.resource_type, each.resource_name, each.pattern_type) for each in answer.resources)
    return answer.error_code.name, rules


@about("create_acls")
def create_acls(c: RawConnection) -> object:
    wrong = creation(rule(Resource.TOPIC, Operation.READ)) | {"resource_name": ""}
    return [each.error_code.name for each in c.call("create_acls", 3, creations=[wrong]).results]


@about("delete_acls")
def delete_acls(c: RawConnection) -> object:
    nothing = everything(host_filter="127.0.0.3")
    return [each.error_code.name for each in c.call("delete_acls", 3, filters=[nothing, nothing]).filter_results]


def config_resources() -> list[dict[str, Any]]:
    topics = [{"resource_type": 2, "resource_name": name} for name in TOPICS]
    groups = [{"resource_type": 32, "resource_name": name} for name in (GROUP, HIDDEN_GROUP)]
    metrics = {"resource_type": 16, "resource_name": "any"}
    return [*topics, *groups, metrics, {"resource_type": 4, "resource_name": ""}]


@about("describe_configs")
def describe_configs(c: RawConnection) -> object:
    asked = [{**each, "configuration_keys": ["retention.ms"]} for each in config_resources()]
    answer = c.call("describe_configs", 4, resources=asked)
    return {each.resource_name: (each.error_code.name, len(each.configs)) for each in answer.results}


@about("alter_configs")
def alter_configs(c: RawConnection) -> object:
    """Kafka checks more of a broker's configs than there is to check here."""
    answer = c.call("alter_configs", 2, resources=config_resources(), validate_only=True)
    return {each.resource_name: is_refused(each.error_code.name) for each in answer.responses}


@about("incremental_alter_configs")
def incremental_alter_configs(c: RawConnection) -> object:
    answer = c.call("incremental_alter_configs", 1, resources=config_resources(), validate_only=True)
    return named(answer.responses, "resource_name")


@about("describe_log_dirs")
def log_dirs(c: RawConnection) -> object:
    answer = c.call("describe_log_dirs", 4, topics=None)
    found = {topic.name for each in answer.results for topic in each.topics}
    return answer.error_code.name, sorted(found & set(TOPICS))


@about("create_partitions")
def create_partitions(c: RawConnection) -> object:
    wanted = [{"name": name, "count": 2, "assignments": None} for name in TOPICS]
    answer = c.call("create_partitions", 3, topics=wanted, timeout=10_000, validate_only=True)
    return named(answer.results)


@about("delete_groups")
def delete_groups(c: RawConnection) -> object:
    answer = c.call("delete_groups", 2, groups_names=["open-no-group", "hidden-no-group"])
    return named(answer.results, "group_id")


@about("elect_leaders")
def elect(c: RawConnection) -> object:
    wanted = [{"topic": name, "partitions": [0]} for name in TOPICS]
    answer = c.call("elect_leaders", 2, election_type=0, topic_partitions=wanted, timeout=10_000)
    results = partitions(answer.replica_election_results, name="topic", inner="partition_result")
    return answer.error_code.name, results


@about("alter_partition_reassignments")
def reassign(c: RawConnection) -> object:
    wanted = [{"name": name, "partitions": [{"partition_index": 0, "replicas": None}]} for name in TOPICS]
    answer = c.call("alter_partition_reassignments", 0, topics=wanted, timeout=10_000)
    return answer.error_code.name, partitions(answer.responses)


@about("list_partition_reassignments")
def reassignments(c: RawConnection) -> object:
    answer = c.call("list_partition_reassignments", 0, topics=None, timeout=10_000)
    return answer.error_code.name, len(answer.topics)


@about("offset_delete")
def offset_delete(c: RawConnection) -> object:
    wanted = [{"name": name, "partitions": [{"partition_index": 1}]} for name in TOPICS]
    answers = [c.call("offset_delete", 0, group_id=group, topics=wanted) for group in (GROUP, HIDDEN_GROUP)]
    return [(each.error_code.name, partitions(each.topics)) for each in answers]


@about("describe_quorum")
def quorum(c: RawConnection) -> object:
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    answer = c.call("describe_quorum", 2, topics=asked)
    return answer.error_code.name, len(answer.topics), len(answer.nodes)


@about("list_config_resources")
def listed_config_resources(c: RawConnection) -> object:
    answer = c.call("list_config_resources", 1, resource_types=[2, 4])
    named = {(each.resource_type, each.resource_name) for each in answer.config_resources}
    return answer.error_code.name, sorted(each for each in named if each[0] == 4 or each[1] in TOPICS)


@about("describe_cluster")
def cluster(c: RawConnection) -> object:
    answer = c.call("describe_cluster", 1, include_cluster_authorized_operations=True, endpoint_type=1)
    return answer.error_code.name, len(answer.brokers), answer.cluster_authorized_operations


@about("describe_producers")
def producers(c: RawConnection) -> object:
    wanted = [{"name": name, "partition_indexes": [0]} for name in TOPICS]
    return partitions(c.call("describe_producers", 0, topics=wanted).topics)


@about("unregister_broker")
def unregister(c: RawConnection) -> object:
    return c.call("unregister_broker", 0, broker_id=77).error_code.name


@about("describe_topic_partitions")
def topic_partitions(c: RawConnection) -> object:
    wanted = [{"name": name} for name in TOPICS]
    answer = c.call("describe_topic_partitions", 0, topics=wanted, response_partition_limit=100, cursor=None)
    return {each.name: (each.error_code.name, each.topic_authorized_operations) for each in answer.topics}


@about("describe_topic_partitions")
def all_topic_partitions(c: RawConnection) -> object:
    answer = c.call("describe_topic_partitions", 0, topics=[], response_partition_limit=100, cursor=None)
    return sorted(each.name for each in answer.topics if each.name in TOPICS)
