"""The client's side of a message: requests written, answers read. `messages.py` is the server's.

A frame, here and in `hot_client.py`, is an answer without the length that precedes it: its correlation id comes first.
An answer is looked at before kio reads it, for the same reasons as a request is (`bounds.py`): a claimed length may be
anything, and a newer broker may send tagged fields that kio does not know.
"""

from functools import cache
from io import BytesIO
from struct import Struct
from typing import Any

from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from oncelog.wire.bounds import Bounds
from oncelog.wire.entities import Maker, entities
from oncelog.wire.frames import Buffer, MalformedFrame, skip_tagged_fields
from oncelog.wire.newer_codes import with_plain_codes
from oncelog.wire.nulls import arrays_of, refuse_nulls
from oncelog.wire.own import OWN_KEYS

CORRELATION_ID_BYTES = 4
# A cluster of a hundred thousand partitions answers Metadata with some hundred thousand elements.
MOST_ANSWERED_ELEMENTS = 20_000_000

_head = Struct(">ihhi")  # length, key, version, correlation id
_int16 = Struct(">h")


class RequestSchema:
    """One API in one version."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        module, _, self.request_type, self.response_type = entities(name, version)
        self.new = Maker(module).new  # a struct of this request
        self.key = int(self.request_type.__api_key__)
        self.has_flexible_request_header: bool = self.request_type.__header_schema__.__version__ >= 2
        self.has_flexible_response_header: bool = self.response_type.__header_schema__.__version__ >= 1
        self._write = entity_writer(self.request_type)
        self._read = entity_reader(self.response_type)
        self._read_plain: Any = None  # for answers with error codes that kio does not know
        self._arrays = arrays_of(self.response_type)
        self._bounds = Bounds(self.response_type, MOST_ANSWERED_ELEMENTS)

    def encode(self, request: Any, correlation_id: int, client_id: str | None) -> bytes:
        """The whole frame, its length included."""
        out = BytesIO()
        self._write(out, request)
        body = out.getvalue()
        header = request_header(
            self.key, self.version, correlation_id, client_id, len(body), is_flexible=self.has_flexible_request_header
        )
        return header + body

    def read(self, frame: Buffer) -> Any:
        """The answer. Raises `MalformedFrame` for whatever is wrong with it."""
        data = bytes(frame)
        at = CORRELATION_ID_BYTES
        try:
            if self.has_flexible_response_header:
                at = skip_tagged_fields(data, at, len(data))
            answer = self._understood(self._bounds.checked(data[at:]))
            refuse_nulls(answer, self._arrays)
        except MalformedFrame:
            raise
        except Exception as error:  # whatever a reader trips over, it was the broker's bytes
            raise MalformedFrame(f"{self.name} answer: {type(error).__name__} {error}") from None
        return answer

    def _understood(self, body: bytes) -> Any:
        try:
            return self._read(body, 0)[0]
        except ValueError:
            if self._read_plain is None:
                self._read_plain = entity_reader(with_plain_codes(self.response_type))
            return self._read_plain(body, 0)[0]


def request_header(
    key: int, version: int, correlation_id: int, client_id: str | None, body_bytes: int, *, is_flexible: bool
) -> bytes:
    """The length of a frame and the request's header; `body_bytes` follow."""
    name = b"" if client_id is None else client_id.encode()
    tail = _int16.pack(-1 if client_id is None else len(name)) + name + (b"\0" if is_flexible else b"")
    return _head.pack(_head.size - 4 + len(tail) + body_bytes, key, version, correlation_id) + tail


@cache
def request_schema(name: str, version: int) -> RequestSchema:
    return RequestSchema(name, version)


@cache
def known_versions(name: str) -> tuple[int, int]:
    """The oldest and the newest version that can be spoken here."""
    if name in OWN_KEYS:
        return 0, 0
    versions = schema_name_map[name]
    return min(versions), max(versions)


@cache
def api_name(key: int) -> str:
    """The name that librdkafka has for it in its statistics."""
    own = {number: name for name, number in OWN_KEYS.items()}
    name = own.get(key) or api_key_map.get(key)
    if name is None:
        return f"Unknown-{key}?"
    return "ApiVersion" if name == "api_versions" else "".join(map(str.capitalize, name.split("_")))


@cache
def api_key(name: str) -> int:
    own = OWN_KEYS.get(name)
    return next(key for key, known in api_key_map.items() if known == name) if own is None else own
