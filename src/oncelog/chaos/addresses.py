"""Answers that carry addresses, rewritten so that clients stay behind the proxy.

Metadata, FindCoordinator and DescribeCluster always carry them; Produce, Fetch, ShareFetch and ShareAcknowledge do
where a leader has moved (KIP-951). An answer to ApiVersions is cut down to the versions of these that can be rewritten,
so that a newer client and a newer server do not agree on one that would lead around the proxy.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from kio.schema.index import api_key_map

from oncelog.error_codes import ErrorCodes as Code
from oncelog.wire.frames import Buffer, MalformedFrame
from oncelog.wire.hot_client import FETCH_VERSIONS, PRODUCE_VERSIONS, read_fetch_answer, read_produce_answer
from oncelog.wire.messages import schema
from oncelog.wire.requests import api_key, known_versions, request_schema

# The address at which the proxy listens for what stands at this one.
Behind = Callable[[str, int], Awaitable[tuple[str, int]]]

API_VERSIONS: Final = 18
_ENDPOINTS_FROM: Final = {"produce": 10, "fetch": 16, "share_fetch": 0, "share_acknowledge": 0}
_CARRIERS: Final = ("metadata", "find_coordinator", "describe_cluster", *_ENDPOINTS_FROM)
_CARRIER_KEYS: Final = {api_key(name): name for name in _CARRIERS}


def api_name(key: int) -> str:
    return api_key_map.get(key, f"api {key}")


async def rewritten(key: int, version: int, frame: Buffer, behind: Behind) -> Buffer:
    """The answer as the client may see it. Raises `MalformedFrame` for one with addresses that cannot be read."""
    if key == API_VERSIONS:
        return _without_unknown(version, frame)
    name = _CARRIER_KEYS.get(key)
    if name is None or not _has_addresses(name, version, frame):
        return frame
    low, high = known_versions(name)
    if not low <= version <= high:
        raise MalformedFrame(f"{name} in version {version} may carry addresses and cannot be rewritten")
    answer = request_schema(name, version).read(frame)
    return _encoded(name, version, frame, await _moved(answer, behind))


def _has_addresses(name: str, version: int, frame: Buffer) -> bool:
    """Produce and Fetch are looked at without kio, since nearly all of them carry none."""
    if version < _ENDPOINTS_FROM.get(name, 0):
        return False
    if name == "produce" and version <= PRODUCE_VERSIONS[1]:
        return bool(read_produce_answer(version, frame).endpoints)
    if name == "fetch" and version <= FETCH_VERSIONS[1]:
        return bool(read_fetch_answer(version, frame).endpoints)
    return True


async def _moved(answer: Any, behind: Behind) -> Any:
    """Every struct with a host and a port, wherever this answer has them."""
    if _has_place(answer):  # FindCoordinator before version 4
        return await _behind(answer, behind)
    changes = {}
    for field in ("brokers", "coordinators", "node_endpoints"):
        if getattr(answer, field, None):
            changes[field] = tuple([await _behind(each, behind) for each in getattr(answer, field)])
    return replace(answer, **changes)


def _has_place(entity: Any) -> bool:
    return hasattr(entity, "host") and hasattr(entity, "port")


async def _behind(entity: Any, behind: Behind) -> Any:
    if not entity.host or int(entity.port) <= 0:
        return entity  # a coordinator that was not found
    host, port = await behind(entity.host, int(entity.port))
    return replace(entity, host=host, port=type(entity.port)(port))


def _without_unknown(version: int, frame: Buffer) -> Buffer:
    spoken = 0 if bytes(frame[4:6]) == Code.UNSUPPORTED_VERSION.to_bytes(2, "big") else version
    low, high = known_versions("api_versions")
    if not low <= spoken <= high:
        return frame
    answer = request_schema("api_versions", spoken).read(frame)
    keys = tuple(each for each in map(_bounded, answer.api_keys) if each is not None)
    return _encoded("api_versions", spoken, frame, replace(answer, api_keys=keys))


def _bounded(offered: Any) -> Any:
    """None where no version is left that could be rewritten."""
    name = _CARRIER_KEYS.get(int(offered.api_key))
    if name is None:
        return offered
    most = min(int(offered.max_version), known_versions(name)[1])
    return replace(offered, max_version=type(offered.max_version)(most)) if most >= offered.min_version else None


def _encoded(name: str, version: int, frame: Buffer, answer: Any) -> bytes:
    return schema(name, version).encode(answer, int.from_bytes(frame[:4], "big", signed=True))
