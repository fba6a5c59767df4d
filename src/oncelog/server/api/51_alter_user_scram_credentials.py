"""AlterUserScramCredentials, version 0 (KIP-554): users come, go, and get other passwords.

Passwords are not in it, only what was made of them. All of a request that may be done is done at once. Who is connected
already stays so, as in Kafka, until that connection has to prove again who it is (`connections.max.reauth.ms`).
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from oncelog.security.documents import Document, Kind
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.security.scram import Credential, credential_of
from oncelog.security.users import NUMBERS, Edited, what_is_wrong_with, what_is_wrong_with_salted
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.known_users import new_secret
from oncelog.server.packing import packed_aside
from oncelog.server.users import put

TWICE = "A user credential cannot be altered twice in the same request"
UNKNOWN_MECHANISM = "Unknown SCRAM mechanism"
NOT_THERE = "Attempt to delete a user credential that does not exist"

Refusals = dict[str, KafkaError]


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    refused: Refusals = {}
    if not call.rights.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        refusal = KafkaError(*REFUSALS[Resource.CLUSTER])
        refused = {each.name: refusal for each in (*request.deletions, *request.upsertions)}
    deletions, upsertions = await _wanted(request, call, refused)
    credentials = await call.broker.aside.run(_credentials, list(upsertions.values()))
    secret = new_secret()
    gone: Refusals = {}

    def change(document: Document) -> Document:
        gone.clear()  # of a try before
        changed = Edited(document, secret)
        for name, each in deletions.items():
            if not changed.remove(name, NUMBERS[each.mechanism]):  # meanwhile
                gone[name] = KafkaError(ErrorCode.resource_not_found, NOT_THERE)
        for name, mechanism, credential in credentials:
            put(changed, name, mechanism, credential)
        return changed.document

    if deletions or upsertions:
        try:
            # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
            steps = call.broker.topics.changing_document(Kind.USERS, change, call.now)
            await asyncio.shield(asyncio.ensure_future(call.broker.turns.run(steps)))
        except KafkaError as failure:
            refused.update(dict.fromkeys((*deletions, *upsertions), failure))
    refused = gone | refused
    names = dict.fromkeys((*deletions, *upsertions, *refused))
    results = await call.each(names, lambda name: _result(name, refused.get(name), call))
    return call.new("AlterUserScramCredentialsResponse", results=results)


async def _wanted(request: Any, call: Call, refused: Refusals) -> tuple[dict[str, Any], dict[str, Any]]:
    """The changes that may be made, by user; a user that is named twice is left as it is."""
    deletions: dict[str, Any] = {}
    upsertions: dict[str, Any] = {}
    turns, users = call.broker.turns, call.broker.users.now
    for each in (*request.deletions, *request.upsertions):
        if turns.is_over():
            await turns.next()
        name, is_upsertion = each.name, hasattr(each, "salted_password")
        if name in refused:
            continue
        refusal: KafkaError | None
        if deletions.pop(name, None) or upsertions.pop(name, None):
            refusal = KafkaError(ErrorCode.duplicate_resource, TWICE)
        else:
            refusal = _refusal(each, is_upsertion)
        if refusal is None and not is_upsertion and NUMBERS[each.mechanism] not in users.mechanisms(name):
            refusal = KafkaError(ErrorCode.resource_not_found, NOT_THERE)
        if refusal is not None:
            refused[name] = refusal
        else:
            (upsertions if is_upsertion else deletions)[name] = each
    return deletions, upsertions


def _refusal(asked: Any, is_upsertion: bool) -> KafkaError | None:
    if wrong := what_is_wrong_with(asked.name):
        return KafkaError(ErrorCode.unacceptable_credential, wrong)
    mechanism = NUMBERS.get(asked.mechanism)
    if mechanism is None:
        return KafkaError(ErrorCode.unsupported_sasl_mechanism, UNKNOWN_MECHANISM)
    if is_upsertion and (
        wrong := what_is_wrong_with_salted(mechanism, asked.iterations, asked.salt, asked.salted_password)
    ):
        return KafkaError(ErrorCode.unacceptable_credential, wrong)
    return None


def _credentials(upsertions: Iterable[Any]) -> list[tuple[str, str, Credential]]:
    return [
        (each.name, mechanism, credential_of(mechanism, each.salted_password, each.salt, each.iterations))
        for each in upsertions
        for mechanism in (NUMBERS[each.mechanism],)
    ]


def _result(name: str, refusal: KafkaError | None, call: Call) -> Any:
    return call.new(
        "AlterUserScramCredentialsResult",
        user=name,
        error_code=ErrorCode.none if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
    )


API = Api(key=51, name="alter_user_scram_credentials", versions=(0, 0), handle=handle)
