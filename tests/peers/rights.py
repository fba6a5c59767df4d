"""What somebody with certain rights is answered, by any broker: each request, about what they may have rights to and
about what they have none to, be it there or not.

Who asks comes from an address of its own (127.0.0.2), because rules can tell hosts apart where nobody has a name yet.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from oncelog.security.bindings import EVERYTHING, Binding, Pattern, Permission
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from tests.raw import RawConnection

PRINCIPAL: Final = "User:ANONYMOUS"
HERE, THERE = "127.0.0.1", "127.0.0.2"  # who may do everything, and who asks
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS: Final = {
    "authorizer.class.name": AUTHORIZER,
    # Until there is a first rule: it opens everything to one host, and by that closes it to the others.
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
}

PREFIX: Final = "open-"  # of what rights are given to
THERE_IS, THERE_IS_NOT = "open-there", "open-not-there"
HIDDEN, HIDDEN_NOT = "hidden-there", "hidden-not-there"
TOPICS: Final = (THERE_IS, THERE_IS_NOT, HIDDEN, HIDDEN_NOT)
GROUP, HIDDEN_GROUP = "open-group", "hidden-group"

Question = Callable[[RawConnection], object]
_numbers = count()
QUESTIONS: dict[str, list[Question]] = {}  # by the request


def about(name: str) -> Callable[[Question], Question]:
    def take(ask: Question) -> Question:
        QUESTIONS.setdefault(name, []).append(ask)
        return ask

    return take


# Rules


def rule(
    resource: Resource,
    operation: Operation,
    *,
    name: str | None = None,
    host: str = THERE,
    permission: Permission = Permission.ALLOW,
) -> Binding:
    pattern = Pattern.LITERAL
    if name is None:
        name, pattern = (CLUSTER_NAME, pattern) if resource is Resource.CLUSTER else (PREFIX, Pattern.PREFIXED)
    return Binding(resource, pattern, name, PRINCIPAL, host, operation, permission)


def creation(binding: Binding) -> dict[str, Any]:
    return {
        "resource_type": binding.resource,
        "resource_name": binding.name,
        "resource_pattern_type": binding.pattern,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    }


def give(c: RawConnection, bindings: Iterable[Binding]) -> list[str]:
    wanted = [creation(each) for each in bindings]
    return [each.error_code.name for each in c.call("create_acls", 3, creations=wanted).results]


def everything(**values: Any) -> dict[str, Any]:
    """A filter that all rules match but for these values."""
    any_rule = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return any_rule | values


def take_back(c: RawConnection) -> None:
    """All that was given to who asks."""
    c.call("delete_acls", 3, filters=[everything(host_filter=THERE)])


def open_to_one_host(c: RawConnection) -> None:
    """Who sets things up may do everything, and from then on nobody else may do anything."""
    names = {Resource.CLUSTER: CLUSTER_NAME}
    kinds = (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID, Resource.CLUSTER)
    every = [rule(kind, Operation.ALL, name=names.get(kind, EVERYTHING), host=HERE) for kind in kinds]
    assert set(give(c, every)) == {"none"}


@contextmanager
def asking(port: int) -> Iterator[RawConnection]:
    with RawConnection(port, from_host=THERE) as connection:
        yield connection


def prepare(c: RawConnection) -> None:
    open_to_one_host(c)
    for topic in (THERE_IS, HIDDEN):
        made = c.call(
            "create_topics",
            5,
            topics=[{"name": topic, "num_partitions": 1, "replication_factor": 1}],
            timeout=10_000,
            validate_only=False,
        )
        assert made.topics[0].error_code.name == "none"
    for group in (GROUP, HIDDEN_GROUP):
        while c.call("find_coordinator", 4, key_type=0, coordinator_keys=[group]).coordinators[0].error_code:
            pass
        committed = [{"name": THERE_IS, "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
        commit = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": committed}
        while c.call("offset_commit", 8, **commit).topics[0].partitions[0].error_code:
            pass


# Questions


def topic_ids(c: RawConnection) -> dict[str, Any]:
    """By the eyes of one who may see them."""
    with RawConnection(c.socket.getpeername()[1]) as other:
        answer = other.call("metadata", 12, topics=[{"name": name} for name in (THERE_IS, HIDDEN)])
    return {each.name: each.topic_id for each in answer.topics}


def made_anew(c: RawConnection, name: str) -> Any:
    """The id of a topic that is there, or is made for who asks, who may take it away."""
    with RawConnection(c.socket.getpeername()[1]) as other:
        while True:
            (found,) = other.call("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False).topics
            if found.error_code.name == "none" and len(found.partitions) == 1:
                return found.topic_id
            wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
            other.call("create_topics", 5, topics=[wanted], timeout=10_000, validate_only=False)


def named(topics: Iterable[Any], name: str = "name") -> dict[str, str]:
    return {getattr(each, name): each.error_code.name for each in topics}


def is_refused(error: str) -> bool:
    return error.endswith("authorization_failed")


def partitions(topics: Iterable[Any], name: str = "name", inner: str = "partitions") -> dict[str, list[str]]:
    return {getattr(each, name): [one.error_code.name for one in getattr(each, inner)] for each in topics}


def next_number() -> int:
    return next(_numbers)
