"""AlterConfigs, versions 0 to 2 (KIP-133): replaces all that a topic or the server has of its own.

Superseded by IncrementalAlterConfigs, and still what older clients send.
"""

import asyncio
from collections import Counter
from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.config_resources import replace
from oncelog.server.errors import ErrorCode, KafkaError


async def handle(request: Any, call: Call) -> Any:
    counts = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    responses = []
    for asked in request.resources:
        is_repeated = counts[asked.resource_type, asked.resource_name] > 1
        responses.append(_answer(asked, call, is_repeated, request.validate_only))
        await asyncio.sleep(0)  # each change waits for the disk; let other connections go on in between
    return call.new("AlterConfigsResponse", responses=tuple(responses))


def _answer(asked: Any, call: Call, is_repeated: bool, validate_only: bool) -> Any:
    code, message = ErrorCode.none, None
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once.")
        _alter(asked, call, validate_only)
    except KafkaError as refusal:
        code, message = refusal.code, refusal.message
    return call.new(
        "AlterConfigsResourceResponse",
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


def _alter(asked: Any, call: Call, validate_only: bool) -> None:
    names = [config.name for config in asked.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys.")
    replace(
        call.broker.topics,
        asked.resource_type,
        asked.resource_name,
        [(config.name, config.value) for config in asked.configs],
        call.now,
        validate_only=validate_only,
    )


API = Api(key=33, name="alter_configs", versions=(0, 2), handle=handle)
