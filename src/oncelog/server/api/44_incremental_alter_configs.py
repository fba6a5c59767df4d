"""IncrementalAlterConfigs, versions 0 to 1 (KIP-339): set, delete, append to and subtract from single configs."""

from typing import Any

from oncelog.log.work_steps import Steps
from oncelog.server.alterations import answer_each
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.config_resources import Change, alter
from oncelog.server.packing import packed_aside


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    return await answer_each(request, call, "IncrementalAlterConfigsResponse", _alter)


def _alter(asked: Any, call: Call, validate_only: bool) -> Steps[None]:
    changes = [Change(config.name, config.config_operation, config.value) for config in asked.configs]
    return alter(
        call.broker.topics,
        asked.resource_type,
        asked.resource_name,
        changes,
        call.now,
        validate_only=validate_only,
    )


API = Api(key=44, name="incremental_alter_configs", versions=(0, 1), handle=handle)
