"""What ApiVersions lists: one entry for each file in `api/`."""

from typing import Any

from oncelog.server.api import apis
from oncelog.server.call import Call


def listed_apis(call: Call) -> tuple[Any, ...]:
    return tuple(
        call.new(
            "ApiVersion",
            api_key=api.key,
            min_version=api.versions[0] if api.advertise_from is None else api.advertise_from,
            max_version=api.versions[1],
        )
        for api in apis().values()
    )
