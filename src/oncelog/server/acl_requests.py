"""The common part of DescribeAcls, CreateAcls and DeleteAcls: rules by Kafka's numbers, and changes of them.

All rules are one document. The changes of one request are made some hundreds at a time, so that
none waits long for the decisions to be indexed anew.
"""

from collections.abc import Collection, Generator
from typing import Any, Final

from oncelog.log.work_steps import Steps
from oncelog.security.bindings import Binding, Filter, Invalid, new_filter
from oncelog.security.documents import Document, Kind
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError

NO_AUTHORIZER: Final = "No Authorizer is configured."
CHANGED_AT_A_TIME: Final = 1_000
LOOKED_AT_IN_A_STEP: Final = 500


def filter_of(asked: Any) -> Filter:
    """Raises KafkaError."""
    try:
        return new_filter(
            asked.resource_type_filter,
            asked.pattern_type_filter,
            asked.resource_name_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )
    except Invalid as error:
        raise KafkaError(ErrorCode.invalid_request, str(error)) from error


def looking(wanted: Filter, call: Call) -> Generator[None, None, list[Binding]]:
    """The rules that match, in steps."""
    only = wanted.only
    if only is not None:
        known = call.broker.access.binding(only.key)
        return [] if known is None else [known]
    found: list[Binding] = []
    bindings = call.broker.access.bindings()
    for start in range(0, len(bindings), LOOKED_AT_IN_A_STEP):
        found += filter(wanted.matches, bindings[start : start + LOOKED_AT_IN_A_STEP])
        yield
    return found


def adding(bindings: Collection[Binding], call: Call) -> Steps[None]:
    """Raises KafkaError where there is no room for them."""
    keys = {binding.key: True for binding in bindings}

    def change(document: Document) -> Document:
        return {**document, **keys}

    return call.broker.topics.changing_document(Kind.ACLS, change, call.now)


def removing(keys: Collection[str], call: Call) -> Steps[None]:
    gone = frozenset(keys)

    def change(document: Document) -> Document:
        return {key: value for key, value in document.items() if key not in gone}

    return call.broker.topics.changing_document(Kind.ACLS, change, call.now)


def refreshing(call: Call) -> Steps[None]:
    """Changes nothing; what others changed before this has been seen then."""
    return call.broker.topics.changing_document(Kind.ACLS, lambda document: document, call.now)
