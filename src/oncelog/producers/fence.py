"""The one record of our control batch, which raises a leased pid's generation without writing anything else.

The batch header carries the pid and the new generation. The record is shaped as Kafka's control records are, because
clients look into it before they skip it:

- its key is a version and a type, two int16. librdkafka fails on a key of version 0 that is not 4 bytes long, and
  kafka-python unpacks exactly 4 bytes;
- its type is none that a client knows. 0 would close an aborted transaction, 1 commits one, 2 to 6 are KRaft's. Java
  takes any other for UNKNOWN, "which should be ignored"; librdkafka skips it with a debug line; aiokafka and
  kafka-python skip every control batch after asking whether it is type 0;
- no client looks at its value. Ours says what the fence is, so that a dump of the log explains itself.
"""

import struct

FENCE_TYPE = 0x4F4C  # "OL"
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hqh")
_VERSION = 0


class NotAFence(Exception):
    """A control record of another kind."""


def fence_key() -> bytes:
    return _KEY.pack(_VERSION, FENCE_TYPE)


def fence_value(pid: int, generation: int) -> bytes:
    return _VALUE.pack(_VERSION, pid, generation)


def is_fence(key: bytes | None) -> bool:
    return key is not None and len(key) == _KEY.size and _KEY.unpack(key) == (_VERSION, FENCE_TYPE)


def read_fence(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """(pid, generation) of our control record."""
    if not is_fence(key) or value is None or len(value) != _VALUE.size:
        raise NotAFence(f"not a fence: key {key!r}, value {value!r}")
    version, pid, generation = _VALUE.unpack(value)
    if version != _VERSION:
        raise NotAFence(f"a fence of version {version}, only {_VERSION} is known")
    return pid, generation
