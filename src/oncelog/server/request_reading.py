"""The content of a request: read by structs where its API has a reader for the usual one, else by kio."""

from typing import Any

from oncelog.server.api import Api
from oncelog.wire.frames import MalformedFrame, skip_tagged_fields
from oncelog.wire.messages import Schema, schema


def read_fast(api: Api, spoken: Schema, buffer: bytearray, at: int, end: int) -> Any:
    """The usual request of an API that has a reader of its own; else None."""
    if api.read is None:
        return None
    if spoken.has_flexible_header:
        at = skip_tagged_fields(buffer, at, end)
    return api.read(buffer, at, end, spoken.version)


def read_by_kio(name: str, version: int, body: bytes) -> Any:
    """The request whose header goes on to the tagged fields, where it has some."""
    spoken = schema(name, version)
    at = skip_tagged_fields(body, 0, len(body)) if spoken.has_flexible_header else 0
    try:
        request, _ = spoken.read(body, at)
    except Exception as error:  # whatever a reader trips over, it was the client's bytes
        raise MalformedFrame(f"{spoken.name} request: {type(error).__name__} {error}") from None
    return request
