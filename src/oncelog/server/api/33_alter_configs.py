"""AlterConfigs, versions 0 to 2 (KIP-133): replaces all that a topic or the server has of its own.

Superseded by IncrementalAlterConfigs, and still what older clients send.
"""

from typing import Any

from oncelog.log.work_steps import Steps
from oncelog.server.alterations import answer_each
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.config_resources import replace
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    return await answer_each(request, call, "AlterConfigsResponse", _alter)


def _alter(asked: Any, call: Call, validate_only: bool) -> Steps[None]:
    names = [config.name for config in asked.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys.")
    return replace(
        call.broker.topics,
        asked.resource_type,
        asked.resource_name,
        [(config.name, config.value) for config in asked.configs],
        call.now,
        validate_only=validate_only,
    )


API = Api(key=33, name="alter_configs", versions=(0, 2), handle=handle)
