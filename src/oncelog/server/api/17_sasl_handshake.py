"""SaslHandshake, versions 0 to 1 (KIP-43, KIP-152): which mechanism a client proves by who it is.

Where it is time for that, `guarded_connection.py` answers it; anywhere else it is refused, as by Kafka.
"""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode


def handle(request: Any, call: Call) -> Any:
    return call.new("SaslHandshakeResponse", error_code=ErrorCode.illegal_sasl_state, mechanisms=())


API = Api(key=17, name="sasl_handshake", versions=(0, 1), handle=handle)
