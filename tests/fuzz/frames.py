"""Frames to send: whole ones of every API and version, and what accidents and malice make of them."""

import gzip
import struct
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple

from oncelog.server.api import apis
from tests.fuzz.entities import Instances
from tests.raw import batch, encode_request, make, message
from tests.raw.batches import records_payload

HUGE_LENGTHS = (2**31 - 1, -(2**31), -1, -2, 0x7FFFFFF0, 1 << 20, 100_000_000)
HUGE_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x08",
    b"\x80" * 20,
)
NO_SUCH_APIS = ((9999, 0), (-1, 0), (3, 99), (0, -1), (18, 32767), (4, 0), (7, 0))


class Frame(NamedTuple):
    """What goes over the wire, length included; `answer` is set where a whole, honest answer must come back."""

    what: str
    data: bytes
    answer: Any = None
    correlation_id: int = 0


class Frames:
    def __init__(self, seed: int, instances: Callable[[Random], Instances] = Instances) -> None:
        self._random = Random(seed)
        self._instances = instances(self._random)
        self._kinds = [
            (api.name, version) for api in apis().values() for version in range(api.versions[0], api.versions[1] + 1)
        ]
        self._turn = 0
        self._earlier: list[bytes] = []

    def next(self) -> Frame:
        """One in four is whole; the others are mutated. Every API has its turn in every version."""
        name, version = self._kinds[self._turn % len(self._kinds)]
        self._turn += 1
        if self._turn % 50 == 0:
            return self._special()
        whole = self._whole(name, version)
        return whole if self._random.random() < 0.25 else self.mutated(whole)

    def next_whole(self) -> Frame:
        self._turn += 1
        return self._whole(*self._kinds[self._turn % len(self._kinds)])

    def mutated(self, whole: Frame) -> Frame:
        change = self._random.choice(CHANGES)
        mutated = change(self._random, whole.data, self._earlier)
        self._remember(whole.data)
        return Frame(f"{whole.what} {change.__name__}", mutated)

    def _whole(self, name: str, version: int) -> Frame:
        kind = message(name, version)
        correlation_id = self._random.randrange(2**31)
        client = self._random.choice((None, "", "fuzz", "c" * 500))
        payload = encode_request(kind, self._instances.of(kind.request), correlation_id, client)
        return Frame(f"{name} v{version}", struct.pack(">i", len(payload)) + payload, kind, correlation_id)

    def _remember(self, data: bytes) -> None:
        self._earlier.append(data)
        if len(self._earlier) > 64:
            self._earlier.pop(self._random.randrange(64))

    def _special(self) -> Frame:
        make = self._random.choice((self._no_such_api, self._garbage, self._bomb, self._lying_length, self._half))
        return make()

    def _no_such_api(self) -> Frame:
        key, version = self._random.choice(NO_SUCH_APIS)
        payload = struct.pack(">hhih", key, version, 1, -1) + self._random.randbytes(30)
        return Frame(f"api {key} v{version}", struct.pack(">i", len(payload)) + payload)

    def _garbage(self) -> Frame:
        return Frame("garbage", self._random.randbytes(self._random.choice((1, 3, 4, 50, 5000))))

    def _bomb(self) -> Frame:
        """Many megabytes of zeros in a few kilobytes, for a topic whose records the server reads."""
        topic = self._random.choice(("fuzzed", "fuzzed-compacted"))
        return Frame("a bomb", produce(topic, batch([b"x"], codec=1, payload=bomb())))

    def _lying_length(self) -> Frame:
        length = self._random.choice(HUGE_LENGTHS)
        return Frame(f"a frame of {length} bytes", struct.pack(">i", length) + self._random.randbytes(20))

    def _half(self) -> Frame:
        payload = self._random.randbytes(100)
        return Frame("half a frame", struct.pack(">i", 5000) + payload)


@cache
def bomb(size_bytes: int = 256 << 20) -> bytes:
    """A record whose value is zeros; the squeezed form is a thousand times smaller."""
    return gzip.compress(records_payload([bytes(size_bytes)]), 6)


def produce(topic: str, records: bytes) -> bytes:
    kind = message("produce", 9)
    part = {"index": 0, "records": records}
    request = make(
        kind.request,
        {"acks": -1, "timeout": 1000, "topic_data": [{"name": topic, "partition_data": [part]}]},
    )
    payload = encode_request(kind, request, 1, "fuzz")
    return struct.pack(">i", len(payload)) + payload


# --- mutations ----------------------------------------------------------------------------------------------------

Change = Callable[[Random, bytes, list[bytes]], bytes]


def resized(data: bytes | bytearray) -> bytes:
    """With a length that is right again, so that the mutation gets past the framing."""
    return struct.pack(">i", len(data) - 4) + bytes(data[4:])


def flip_bits(random: Random, data: bytes, _: list[bytes]) -> bytes:
    out = bytearray(data)
    for _i in range(random.choice((1, 1, 2, 8))):
        out[random.randrange(4, len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def flip_header_bits(random: Random, data: bytes, _: list[bytes]) -> bytes:
    out = bytearray(data)
    out[random.randrange(4, min(14, len(out)))] ^= 1 << random.randrange(8)
    return bytes(out)


def cut_short(random: Random, data: bytes, _: list[bytes]) -> bytes:
    return resized(data[: random.randrange(4, len(data))])


def grow(random: Random, data: bytes, _: list[bytes]) -> bytes:
    return resized(data + random.randbytes(random.choice((1, 10, 1000))))


def huge_length(random: Random, data: bytes, _: list[bytes]) -> bytes:
    out = bytearray(data)
    at = random.randrange(12, max(13, len(out) - 3))
    out[at : at + 4] = struct.pack(">i", random.choice(HUGE_LENGTHS))
    return resized(out)


def huge_short_length(random: Random, data: bytes, _: list[bytes]) -> bytes:
    out = bytearray(data)
    at = random.randrange(12, max(13, len(out) - 1))
    out[at : at + 2] = struct.pack(">h", random.choice((32767, -32768, -2, -1)))
    return resized(out)


def huge_varint(random: Random, data: bytes, _: list[bytes]) -> bytes:
    at = random.randrange(12, max(13, len(data)))
    return resized(data[:at] + random.choice(HUGE_VARINTS) + data[at + 1 :])


def deep_array(random: Random, data: bytes, _: list[bytes]) -> bytes:
    """The same few bytes over and over: arrays within arrays, tags within tags."""
    at = random.randrange(12, max(13, len(data)))
    piece = data[at : at + random.choice((1, 2, 4, 8))] or b"\x02"
    return resized(data[:at] + piece * random.choice((10, 500, 5000)) + data[at:])


def zeros(random: Random, data: bytes, _: list[bytes]) -> bytes:
    out = bytearray(data)
    at = random.randrange(12, max(13, len(out)))
    end = min(len(out), at + random.choice((1, 4, 16)))
    out[at:end] = bytes(end - at)
    return bytes(out)


def splice(random: Random, data: bytes, earlier: list[bytes]) -> bytes:
    other = random.choice(earlier) if earlier else data
    return resized(data[: random.randrange(4, len(data))] + other[random.randrange(min(12, len(other)), len(other)) :])


def other_version(random: Random, data: bytes, _: list[bytes]) -> bytes:
    return data[:6] + struct.pack(">h", random.randrange(20)) + data[8:]


def other_key(random: Random, data: bytes, _: list[bytes]) -> bytes:
    return data[:4] + struct.pack(">h", random.randrange(80)) + data[6:]


def wrong_size(random: Random, data: bytes, _: list[bytes]) -> bytes:
    return struct.pack(">i", max(0, len(data) - 4 + random.choice((-8, -1, 1, 8, 1000)))) + data[4:]


CHANGES: tuple[Change, ...] = (
    flip_bits,
    flip_bits,
    flip_header_bits,
    cut_short,
    grow,
    huge_length,
    huge_short_length,
    huge_varint,
    deep_array,
    zeros,
    splice,
    other_version,
    other_key,
    wrong_size,
)
