"""The requests that the server understands: one file per API key, found by listing this folder.

A file `NN_name.py` states its versions and the KIPs it obeys at the top, and ends in one `API = Api(...)`.
Its handler takes the request and the call, and returns the answer, or an awaitable of it: an entity, or `Encoded`
where the frame is packed already. A connection goes on with its next request when the answer is there, as in Kafka.
Produce has no handler: `server/produce.py` takes what arrived together.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from oncelog.server.call import Call

Topic = TypeVar("Topic")  # its name, or its id
# The buffer, where the body begins and ends in it, the version
Reader = Callable[[bytes | bytearray, int, int, int], Any]
Handler = Callable[[Any, Call], Any | Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    key: int
    name: str
    versions: tuple[int, int]
    handle: Handler | None = None
    read: Reader | None = None  # of the usual request, faster than kio; answers None for one that it leaves to kio
    advertise_from: int | None = None  # a lower version than is served, for clients that judge features by it


def once(named: Iterable[tuple[Topic, Iterable[int]]]) -> dict[Topic, dict[int, None]]:
    """The partitions by topic, each once and in the order of the request: Kafka makes sets of what is named, too."""
    found: dict[Topic, dict[int, None]] = {}
    for name, indexes in named:
        found.setdefault(name, {}).update(dict.fromkeys(indexes))
    return found


@cache
def apis() -> dict[int, Api]:
    found: dict[int, Api] = {}
    for path in sorted(Path(__file__).parent.glob("[0-9]*_*.py")):
        api: Api = import_module(f"{__name__}.{path.stem}").API
        if path.stem != f"{api.key:02d}_{api.name}" or api.key in found:
            raise ValueError(f"{path.name} declares the key {api.key} and the name {api.name}")
        found[api.key] = api
    return found
