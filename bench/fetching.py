"""Fetch load on one raw connection: one request in flight, as a consumer has; every answer is checked."""

import gc
import socket
import ssl
import struct
import time
from dataclasses import dataclass

from tests.raw import RawConnection, encode_request, make, message

FETCH_VERSION = 11
ANSWER_BYTES = 1 << 20
_BATCH = struct.Struct(">qi")
_DELTA = struct.Struct(">i")
_DELTA_AT = 23


@dataclass(frozen=True, slots=True)
class FetchRate:
    answers: int
    size_bytes: int
    seconds: float

    @property
    def mb_per_s(self) -> float:
        return self.size_bytes / self.seconds / 1e6


class FetchFailed(RuntimeError):
    pass


def fetch_frame(topic: str, partition: int) -> bytearray:
    """A fetch whose offset is patched in place; it is looked for by a number that stands nowhere else."""
    kind = message("fetch", FETCH_VERSION)
    wanted = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": 0x0123456789ABCDEF,
        "log_start_offset": -1,
        "partition_max_bytes": ANSWER_BYTES,
    }
    values = {"replica_id": -1, "max_wait": 500, "min_bytes": 1, "max_bytes": ANSWER_BYTES, "session_epoch": -1}
    request = make(kind.request, {**values, "topics": [{"topic": topic, "partitions": [wanted]}]})
    payload = encode_request(kind, request, 1, "bench")
    return bytearray(struct.pack(">i", len(payload)) + payload)


def fetch_rate(
    port: int, topic: str, start: int, end: int, partition: int = 0, tls: ssl.SSLContext | None = None
) -> FetchRate:
    """Reads the offsets start … end-1 in answers of up to 1 MB."""
    frame = fetch_frame(topic, partition)
    offset_at = frame.index(struct.pack(">q", 0x0123456789ABCDEF))
    buffer = bytearray(4 * ANSWER_BYTES)
    view = memoryview(buffer)
    # v11: size, correlation id, throttle, error, session, topics, name, partitions, index, error, high watermark,
    # last stable, log start, aborted (none), preferred replica, records
    name_bytes = len(topic.encode())
    error_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + name_bytes + 4 + 4
    aborted_at = error_at + 2 + 8 * 3
    offset, answers, size_bytes = start, 0, 0
    with RawConnection(port, timeout_s=60, tls=tls) as connection:
        sock = connection.socket
        gc.collect()
        started = time.perf_counter()
        while offset < end:
            struct.pack_into(">q", frame, offset_at, offset)
            sock.sendall(frame)
            size = receive_frame(sock, view)
            (error,) = struct.unpack_from(">h", buffer, error_at)
            (aborted,) = struct.unpack_from(">i", buffer, aborted_at)
            records_at = aborted_at + 4 + max(0, aborted) * 16 + 4
            (length,) = struct.unpack_from(">i", buffer, records_at)
            if error or records_at + 4 + length != size + 4:
                raise FetchFailed(f"error {error} at offset {offset}: {length} bytes of records in {size}")
            offset, _ = _next_offset(buffer, records_at + 4, records_at + 4 + length, offset)
            answers += 1
            size_bytes += length
        seconds = time.perf_counter() - started
    return FetchRate(answers, size_bytes, seconds)


def _next_offset(buffer: bytearray, at: int, end: int, asked: int) -> tuple[int, int]:
    """The offset behind the whole batches in the buffer, and where they end."""
    first = True
    while at + 61 <= end:
        base, length = _BATCH.unpack_from(buffer, at)
        if at + 12 + length > end:
            break
        if first and not base <= asked:
            raise FetchFailed(f"asked for {asked}, got {base}")
        first = False
        asked = base + _DELTA.unpack_from(buffer, at + _DELTA_AT)[0] + 1
        at += 12 + length
    if first:
        raise FetchFailed(f"no whole batch came at offset {asked}")
    return asked, at


def receive_frame(sock: socket.socket, view: memoryview) -> int:
    """Reads one answer to the front of the buffer; the size that it names."""
    filled = 0
    while filled < 4:
        filled += sock.recv_into(view[filled:4]) or _closed()
    size = int.from_bytes(view[:4], "big")
    while filled < size + 4:
        filled += sock.recv_into(view[filled : size + 4]) or _closed()
    return size


def _closed() -> int:
    raise FetchFailed("the server closed the connection")


def bare_fetch_rate(port: int, size_bytes: int) -> FetchRate:
    """Reads the first `size_bytes` of the segment that a bare program serves, 1 MB at a time.

    The batches in it are walked as those of a server are, so that the reader has the same work.
    """
    buffer = bytearray(4 * ANSWER_BYTES)
    view = memoryview(buffer)
    at, answers, offset = 0, 0, 0
    with RawConnection(port, timeout_s=60) as connection:
        sock = connection.socket
        started = time.perf_counter()
        while at < size_bytes:
            sock.sendall(struct.pack(">qi", at, ANSWER_BYTES))
            got = receive_frame(sock, view)
            offset, end = _next_offset(buffer, 4, 4 + got, offset)
            at += end - 4
            answers += 1
        seconds = time.perf_counter() - started
    return FetchRate(answers, at, seconds)
