"""Fetch, versions 4 to 18 (KIP-74 limits, KIP-320 leader epochs, KIP-516 topic ids; KIP-903 followers, from 15 on).

Fetch sessions (KIP-227, from version 7 on): `fetch_sessions.py` says what is asked for and what is left out.
"""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.fetch import fetch, refused
from oncelog.server.follower_fetch import follower_fetch
from oncelog.wire.fetch_request import FetchRequest, from_entity, read_fetch
from oncelog.wire.follower_fetch import FollowerFetch

FULL_FETCH_EPOCHS = (0, -1)  # followers have no sessions, as Kafka allows


def handle(request: Any, call: Call) -> Any:
    if type(request) is not FetchRequest and type(request) is not FollowerFetch:
        request = from_entity(request, call.version)
    if type(request) is FetchRequest:
        return fetch(request, call)
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        return refused(ErrorCode.fetch_session_id_not_found, call)
    call.spending = None  # copies wait for no quota
    return follower_fetch(request, call)


API = Api(key=1, name="fetch", versions=(4, 18), handle=handle, read=read_fetch)
