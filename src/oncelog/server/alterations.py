"""The common part of AlterConfigs and IncrementalAlterConfigs: each resource is altered, and answered, by itself."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from oncelog.log.work_steps import Steps
from oncelog.security.operations import Operation
from oncelog.server.call import Call
from oncelog.server.config_resources import demand_configs
from oncelog.server.errors import ErrorCode, KafkaError

Alter = Callable[[Any, Call, bool], Steps[None]]


async def answer_each(request: Any, call: Call, response_name: str, alter: Alter) -> Any:
    counts = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    responses = []
    turns = call.broker.turns
    for asked in request.resources:
        is_repeated = counts[asked.resource_type, asked.resource_name] > 1
        responses.append(await _answer(asked, call, alter, is_repeated, request.validate_only))
        if turns.is_over():
            await turns.next()
    return call.new(response_name, responses=tuple(responses))


async def _answer(asked: Any, call: Call, alter: Alter, is_repeated: bool, validate_only: bool) -> Any:
    code, message = ErrorCode.none, None
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once.")
        demand_configs(call.rights, Operation.ALTER_CONFIGS, asked.resource_type, asked.resource_name)
        # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
        await asyncio.shield(asyncio.ensure_future(call.broker.turns.run(alter(asked, call, validate_only))))
    except KafkaError as refusal:
        code, message = refusal.code, refusal.message
    return call.new(
        "AlterConfigsResourceResponse",
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )
