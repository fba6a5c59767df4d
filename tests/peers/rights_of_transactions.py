"""What is asked about transactions by one who has certain rights, as in `rights_questions.py`. Each question has a
producer that was initialised just before, by one who may do everything."""

from tests.peers.questions.transacting import (
    ABORT,
    Who,
    add,
    add_offsets,
    added,
    begun,
    described,
    end,
    find,
    init_once,
    name_of_code,
    offsets,
    once_passed,
    write,
)
from tests.peers.rights import GROUP, HIDDEN, HIDDEN_GROUP, HIDDEN_NOT, THERE_IS, THERE_IS_NOT, TOPICS, about
from tests.raw import RawConnection

ID, HIDDEN_ID = "open-id", "hidden-id"
IDS = (ID, HIDDEN_ID)
GROUPS = (GROUP, HIDDEN_GROUP)


def fresh(c: RawConnection, name: str, *topics: str) -> Who:
    """Its transaction has those topics already."""
    with RawConnection(c.socket.getpeername()[1]) as other:
        who = begun(other, name)
        for topic in topics:
            added(other, who, topic, 0)
        return who


@about("find_coordinator")
def coordinators_of_transactions(c: RawConnection) -> object:
    for each in IDS:
        fresh(c, each)
    return [find(c, each, 1) for each in (*IDS, "open-id-not-there")]


@about("init_producer_id")
def producers_in_transactions(c: RawConnection) -> object:
    for each in IDS:
        fresh(c, each)
    return [once_passed(lambda each=each: init_once(c, each))[0] for each in IDS]


@about("produce")
def writes_in_transactions(c: RawConnection) -> object:
    owners = [fresh(c, each, THERE_IS, HIDDEN) for each in IDS]
    return [[write(c, who, topic, 0) for topic in (THERE_IS, HIDDEN)] for who in owners]


@about("add_partitions_to_txn")
def partitions_of_transactions(c: RawConnection) -> object:
    owners = [fresh(c, each) for each in IDS]
    return [[add(c, who, topic, 0) for topic in TOPICS] for who in owners]


@about("add_partitions_to_txn")
def partitions_of_transactions_by_a_broker(c: RawConnection) -> object:
    who = fresh(c, ID, THERE_IS)
    own = {"transactional_id": who.name, "producer_id": who.pid, "producer_epoch": who.epoch, "verify_only": True}
    wanted = [{**own, "topics": [{"name": topic, "partitions": [0]} for topic in (THERE_IS, HIDDEN)]}]
    answer = c.call("add_partitions_to_txn", 4, transactions=wanted)
    found = {
        topic.name: [name_of_code(one.partition_error_code) for one in topic.results_by_partition]
        for each in answer.results_by_transaction
        for topic in each.topic_results
    }
    return name_of_code(answer.error_code), found


@about("add_offsets_to_txn")
def groups_of_transactions(c: RawConnection) -> object:
    owners = [fresh(c, each) for each in IDS]
    return [[once_passed(lambda: add_offsets(c, who, group)) for group in GROUPS] for who in owners]  # noqa: B023


@about("end_txn")
def ends_of_transactions(c: RawConnection) -> object:
    return [end(c, fresh(c, each, THERE_IS), ABORT)[0] for each in IDS]


@about("txn_offset_commit")
def offsets_of_transactions(c: RawConnection) -> object:
    owners = [fresh(c, each) for each in IDS]
    return [
        [offsets(c, who, group, topic, 5) for group in GROUPS for topic in (THERE_IS, HIDDEN, HIDDEN_NOT)]
        for who in owners
    ]


@about("write_txn_markers")
def markers(c: RawConnection) -> object:
    """For topics that there are not: of interest is whether that is looked at."""
    marker = {
        "producer_id": 2**33,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": name, "partition_indexes": [0]} for name in (THERE_IS_NOT, HIDDEN_NOT)],
    }
    answer = c.call("write_txn_markers", 1, markers=[marker])
    return sorted(name_of_code(one.error_code) for topic in answer.markers[0].topics for one in topic.partitions)


@about("describe_transactions")
def transactions_as_they_are(c: RawConnection) -> object:
    for each in IDS:
        fresh(c, each, THERE_IS, HIDDEN)
    return [(found[0], found[1], found[3]) for found in (described(c, each) for each in (*IDS, "open-id-not-there"))]


@about("list_transactions")
def all_transactions(c: RawConnection) -> object:
    for each in IDS:
        fresh(c, each)
    answer = c.call("list_transactions", 0, state_filters=[], producer_id_filters=[])
    return name_of_code(answer.error_code), sorted(
        each.transactional_id for each in answer.transaction_states if each.transactional_id in IDS
    )
