"""IncrementalAlterConfigs, versions 0 to 1 (KIP-339): set, delete, append to and subtract from single configs."""

import asyncio
from collections import Counter
from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.config_resources import Change, alter
from oncelog.server.errors import ErrorCode, KafkaError


async def handle(request: Any, call: Call) -> Any:
    counts = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    responses = []
    for asked in request.resources:
        is_repeated = counts[asked.resource_type, asked.resource_name] > 1
        responses.append(_answer(asked, call, is_repeated, request.validate_only))
        await asyncio.sleep(0)  # each change waits for the disk; let other connections go on in between
    return call.new("IncrementalAlterConfigsResponse", responses=tuple(responses))


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
    changes = [Change(config.name, config.config_operation, config.value) for config in asked.configs]
    alter(
        call.broker.topics,
        asked.resource_type,
        asked.resource_name,
        changes,
        call.now,
        validate_only=validate_only,
    )


API = Api(key=44, name="incremental_alter_configs", versions=(0, 1), handle=handle)
