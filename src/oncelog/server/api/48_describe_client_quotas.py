"""DescribeClientQuotas, versions 0 to 1 (KIP-546): the quotas of users, client ids and addresses that fit a filter."""

from functools import partial
from typing import Any

from oncelog.security import quotas
from oncelog.security.documents import Kind
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.security.quotas import Entity, Matching, Values
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    if not call.rights.may(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return _refused(*REFUSALS[Resource.CLUSTER], call)
    try:
        wanted = quotas.matching(
            ((each.entity_type, each.match_type, each.match) for each in request.components), is_strict=request.strict
        )
    except quotas.Unsupported as refusal:
        return _refused(ErrorCode.unsupported_version, str(refusal), call)
    except quotas.Refused as refusal:
        return _refused(ErrorCode.invalid_request, str(refusal), call)
    if not wanted.names and not wanted.types and wanted.is_strict:
        found: Any = ()
    else:
        found = quotas.read(call.broker.topics.document(Kind.QUOTAS)).items()
    entries = await call.each(found, partial(_entry, wanted=wanted, call=call))
    return call.new(
        "DescribeClientQuotasResponse",
        error_code=ErrorCode.none,
        error_message="",
        entries=tuple(each for each in entries if each is not None),
    )


def _refused(code: ErrorCode, message: str, call: Call) -> Any:
    return call.new("DescribeClientQuotasResponse", error_code=code, error_message=message, entries=None)


def _entry(found: tuple[Entity, Values], wanted: Matching, call: Call) -> Any:
    entity, values = found
    if not wanted.fits(entity):
        return None
    return call.new(
        "EntryData",
        entity=tuple(call.new("EntityData", entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(call.new("ValueData", key=key, value=value) for key, value in values.items()),
    )


API = Api(key=48, name="describe_client_quotas", versions=(0, 1), handle=handle)
