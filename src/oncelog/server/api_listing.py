"""The list in ApiVersions' answer: one entry for each file in `api/`."""

from typing import Any

from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.wire.own import LEASE_PID_KEY


def listed_apis(call: Call) -> tuple[Any, ...]:
    return tuple(
        call.new(
            "ApiVersion",
            api_key=api.key,
            min_version=api.versions[0] if api.advertise_from is None else api.advertise_from,
            max_version=api.versions[1],
        )
        for api in apis().values()
        if api.key != LEASE_PID_KEY or call.broker.pid_binding is None  # a lease's pid has no room for its owner
    )
