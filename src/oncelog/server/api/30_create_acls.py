"""CreateAcls, versions 1 to 3 (KIP-140, KIP-290 patterns). A rule that is there already is no error, as in Kafka.

Each rule is answered for itself. They count on this server when the answer is there, and on others a moment later.
"""

import asyncio
from typing import Any

from oncelog.security.bindings import Binding, Invalid, new_binding
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.acl_requests import CHANGED_AT_A_TIME, NO_AUTHORIZER, adding
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside

Refusals = dict[int, KafkaError]  # by their number in the request


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    refused: Refusals = {}
    if not call.rights.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        refused = dict.fromkeys(range(len(request.creations)), KafkaError(*REFUSALS[Resource.CLUSTER]))
    elif not call.broker.access.is_asked:
        none = KafkaError(ErrorCode.security_disabled, NO_AUTHORIZER)
        refused = dict.fromkeys(range(len(request.creations)), none)
    else:
        # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
        refused = await asyncio.shield(asyncio.ensure_future(_create(request.creations, call)))
    return call.new(
        "CreateAclsResponse",
        results=await call.each(range(len(request.creations)), lambda number: _result(refused.get(number), call)),
    )


async def _create(creations: tuple[Any, ...], call: Call) -> Refusals:
    refused: Refusals = {}
    turns = call.broker.turns
    for start in range(0, len(creations), CHANGED_AT_A_TIME):
        wanted: dict[int, Binding] = {}
        for number, asked in enumerate(creations[start : start + CHANGED_AT_A_TIME], start):
            try:
                wanted[number] = _binding(asked)
            except Invalid as error:
                refused[number] = KafkaError(ErrorCode.invalid_request, str(error))
            if turns.is_over():
                await turns.next()
        try:
            await turns.run(adding(wanted.values(), call))
        except KafkaError as error:
            refused |= dict.fromkeys(wanted, error)
    return refused


def _binding(asked: Any) -> Binding:
    return new_binding(
        asked.resource_type,
        asked.resource_pattern_type,
        asked.resource_name,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


def _result(refusal: KafkaError | None, call: Call) -> Any:
    if refusal is None:
        return call.new("AclCreationResult", error_code=ErrorCode.none, error_message=None)
    return call.new("AclCreationResult", error_code=refusal.code, error_message=refusal.message)


API = Api(key=30, name="create_acls", versions=(1, 3), handle=handle)
