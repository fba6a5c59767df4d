"""Fetch, versions 4 to 18 (KIP-74 limits, KIP-320 leader epochs, KIP-516 topic ids; KIP-903 followers, from 15 on).

Fetch sessions (KIP-227) are declined as Kafka allows: every answer has the session id 0, so that clients send all
their partitions each time; a session that a client claims to have is not found.
"""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call, Encoded
from oncelog.server.errors import ErrorCode
from oncelog.server.fetch import fetch
from oncelog.server.follower_fetch import follower_fetch
from oncelog.wire.fetch_request import FetchRequest, from_entity, read_fetch
from oncelog.wire.follower_fetch import FollowerFetch
from oncelog.wire.hot import encode_fetched

FULL_FETCH_EPOCHS = (0, -1)


def handle(request: Any, call: Call) -> Any:
    if type(request) is not FetchRequest and type(request) is not FollowerFetch:
        request = from_entity(request, call.version)
    if call.version >= 7 and request.session_epoch not in FULL_FETCH_EPOCHS:
        code = ErrorCode.fetch_session_id_not_found
        return Encoded(encode_fetched(call.version, call.correlation_id, (), error_code=code))
    if type(request) is FetchRequest:
        return fetch(request, call)
    call.spending = None  # copies wait for no quota
    return follower_fetch(request, call)


API = Api(key=1, name="fetch", versions=(4, 18), handle=handle, read=read_fetch)
