"""SaslAuthenticate, versions 0 to 2 (KIP-152, KIP-368): a message of a mechanism, by which a client proves who it is.

Where it is time for that, `guarded_connection.py` answers it; anywhere else it is refused, as by Kafka.
"""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode


def handle(request: Any, call: Call) -> Any:
    return call.new(
        "SaslAuthenticateResponse",
        error_code=ErrorCode.illegal_sasl_state,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )


API = Api(key=36, name="sasl_authenticate", versions=(0, 2), handle=handle)
