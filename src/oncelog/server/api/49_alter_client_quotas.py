"""AlterClientQuotas, versions 0 to 1 (KIP-546). They count from the next request on, also for who waits now.

What is good of a request is done, all of it by one change; an entity that is named again is refused, as in Kafka.
"""

import asyncio
from functools import partial
from typing import Any

from oncelog.security import quotas
from oncelog.security.documents import Document, Kind
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.security.quotas import Changes, Entity
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside

Outcome = tuple[ErrorCode, str | None]
GOOD: Outcome = (ErrorCode.none, None)


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    if not call.rights.may(Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return await _answer(dict.fromkeys(map(_entity, request.entries), REFUSALS[Resource.CLUSTER]), call)
    outcomes: dict[Entity, Outcome] = {}
    good: dict[Entity, Changes] = {}
    await call.each(request.entries, partial(_judge, outcomes=outcomes, good=good))
    if good and not request.validate_only:
        failure = await _change(good, call)
        if failure is not None:
            outcomes |= dict.fromkeys(good, failure)
    return await _answer(outcomes, call)


def _entity(entry: Any) -> Entity:
    return quotas.entity_of((each.entity_type, each.entity_name) for each in entry.entity)


def _judge(entry: Any, outcomes: dict[Entity, Outcome], good: dict[Entity, Changes]) -> None:
    entity = _entity(entry)
    changes = quotas.alteration((each.key, None if each.remove else each.value) for each in entry.ops)
    if changes is None or entity in outcomes:
        again = f"Ignoring duplicate entity {quotas.in_words(entity)}"
        outcomes[entity] = ErrorCode.invalid_request, again
        return
    try:
        quotas.check(entity, changes)
    except quotas.Refused as refusal:
        outcomes[entity] = ErrorCode.invalid_request, str(refusal)
        return
    good[entity] = changes
    outcomes[entity] = GOOD


async def _change(good: dict[Entity, Changes], call: Call) -> Outcome | None:
    def change(document: Document) -> Document:
        return quotas.changed(document, good.items())

    steps = call.broker.topics.changing_document(Kind.QUOTAS, change, call.now)
    try:
        # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
        await asyncio.shield(asyncio.ensure_future(call.broker.turns.run(steps)))
    except KafkaError as refusal:
        return refusal.code, refusal.message
    return None


async def _answer(outcomes: dict[Entity, Outcome], call: Call) -> Any:
    entries = await call.each(outcomes.items(), partial(_told, call=call))
    return call.new("AlterClientQuotasResponse", entries=entries)


def _told(outcome: tuple[Entity, Outcome], call: Call) -> Any:
    entity, (code, message) = outcome
    return call.new(
        "EntryData",
        error_code=code,
        error_message=message,
        entity=tuple(call.new("EntityData", entity_type=kind, entity_name=name) for kind, name in entity),
    )


API = Api(key=49, name="alter_client_quotas", versions=(0, 1), handle=handle)
