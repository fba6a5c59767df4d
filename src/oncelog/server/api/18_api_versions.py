"""ApiVersions, versions 0 to 4 (KIP-35, KIP-511 client names, KIP-584 features).

`transaction.version` 2 is final: clients that know it leave the adding of partitions to brokers, and take a raised
epoch from each end of a transaction (KIP-890). So is `group.version` 1: groups of KIP-848.

A version that is too new is answered in version 0 with UNSUPPORTED_VERSION and this list, so that the client can
choose again; `connection.py` sees to that.
"""

import re
from typing import Any

from oncelog.server.api import Api
from oncelog.server.api_listing import listed_apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode

FEATURES, LEAST_ZERO = 3, 4
FINAL = {"group.version": 1, "transaction.version": 2}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: Any, call: Call) -> Any:
    is_named = call.version < 3 or (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    )
    error_code = ErrorCode.none if is_named else ErrorCode.invalid_request
    if call.version < FEATURES:
        return call.new("ApiVersionsResponse", error_code=error_code, api_keys=listed_apis(call))
    least = 0 if call.version >= LEAST_ZERO else 1
    return call.new(
        "ApiVersionsResponse",
        error_code=error_code,
        api_keys=listed_apis(call),
        supported_features=tuple(
            call.new("SupportedFeatureKey", name=name, min_version=least, max_version=version)
            for name, version in FINAL.items()
        ),
        finalized_features_epoch=0,
        finalized_features=tuple(
            call.new("FinalizedFeatureKey", name=name, max_version_level=version, min_version_level=version)
            for name, version in FINAL.items()
        ),
    )


API = Api(key=18, name="api_versions", versions=(0, 4), handle=handle)
