"""ApiVersions, versions 0 to 4 (KIP-35, KIP-511 client names, KIP-584 features).

A version that is too new is answered in version 0 with UNSUPPORTED_VERSION and this list, so that the client can
choose again; `connection.py` sees to that.
"""

import re
from typing import Any

from oncelog.server.api import Api
from oncelog.server.api_listing import listed_apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: Any, call: Call) -> Any:
    is_named = call.version < 3 or (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    )
    error_code = ErrorCode.none if is_named else ErrorCode.invalid_request
    return call.new("ApiVersionsResponse", error_code=error_code, api_keys=listed_apis(call))


API = Api(key=18, name="api_versions", versions=(0, 4), handle=handle)
