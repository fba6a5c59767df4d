"""Produce load on one raw connection: real producer ids, a new sequence and CRC in every frame, every answer checked.

All of a run's frames are made before the clock starts, so that the generator sends with few system calls and is not
the bound: a small frame is copied whole, a large one is a head of its own in front of records that all frames share.
"""

import gc
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from crc32c import crc32c

from tests.raw import RawConnection, batch, encode_request, make, message
from tests.raw.batches import HEADER_BYTES

PRODUCE_VERSION = 9
RECORD_BYTES = 100
SMALL_FRAME_BYTES = 4096
MOST_BUFFERS = 512  # the kernel takes 1,024 in one sendmsg
_SEQUENCE_AT = 53
_CRC_AT = 17
_CRC_FROM = 21


class LoadFailed(RuntimeError):
    """The server refused something, or answered what it was not asked."""


@dataclass(frozen=True, slots=True)
class Rate:
    requests: int
    records: int
    size_bytes: int
    seconds: float

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.size_bytes / self.seconds / 1e6


class Frames:
    """`count` produce requests of one producer: sequences follow each other, correlation ids count from `first_id`."""

    def __init__(
        self,
        topic: str,
        records_per_batch: int,
        count: int,
        *,
        pid: int = -1,
        epoch: int = -1,
        sequence: int = 0,
        first_id: int = 1,
        partition: int = 0,
    ) -> None:
        idempotent = pid >= 0
        records = batch(
            [b"x" * RECORD_BYTES] * records_per_batch, pid=pid, epoch=epoch, sequence=0 if idempotent else -1
        )
        frame = bytearray(produce_frame(topic, partition, records))
        batch_at = frame.rindex(records[HEADER_BYTES:]) - HEADER_BYTES if records_per_batch else len(frame)
        head_bytes = batch_at + HEADER_BYTES
        self.records_per_batch = records_per_batch
        self.count = count
        self.first_id = first_id
        self.frame_bytes = len(frame)
        self._shared = len(frame) > SMALL_FRAME_BYTES
        self._step = head_bytes if self._shared else len(frame)
        self._tail = memoryview(bytes(frame[head_bytes:]))
        template = bytes(frame[: self._step])
        blob = bytearray(template * count)
        whole = memoryview(frame)
        put_id, put_crc = struct.Struct(">i").pack_into, struct.Struct(">I").pack_into
        crc_covers = whole[batch_at + _CRC_FROM : batch_at + len(records)]
        for i in range(count):
            at = i * self._step
            if idempotent:
                put_id(frame, batch_at + _SEQUENCE_AT, (sequence + i * records_per_batch) % 2**31)
                blob[at : at + self._step] = frame[: self._step]
                put_crc(blob, at + batch_at + _CRC_AT, crc32c(crc_covers))
            put_id(blob, at + 8, first_id + i)
        self._blob = memoryview(blob)

    def send(self, sock: socket.socket, first: int, count: int) -> None:
        heads = self._blob[first * self._step : (first + count) * self._step]
        if not self._shared:
            sock.sendall(heads)
            return
        step, tail = self._step, self._tail
        for start in range(0, count, MOST_BUFFERS // 2):
            buffers: list[memoryview] = []
            for i in range(start, min(count, start + MOST_BUFFERS // 2)):
                buffers += (heads[i * step : (i + 1) * step], tail)
            send_all(sock, buffers)


def send_all(sock: socket.socket, buffers: list[memoryview]) -> None:
    if isinstance(sock, ssl.SSLSocket):  # it cannot gather
        for each in buffers:
            sock.sendall(each)
        return
    while buffers:
        sent = sock.sendmsg(buffers)
        while buffers and sent >= len(buffers[0]):
            sent -= len(buffers.pop(0))
        if sent:
            buffers[0] = buffers[0][sent:]


def produce_frame(topic: str, partition: int, records: bytes) -> bytes:
    kind = message("produce", PRODUCE_VERSION)
    data = {"name": topic, "partition_data": [{"index": partition, "records": records}]}
    request = make(kind.request, {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": [data]})
    payload = encode_request(kind, request, 1, "bench")
    return struct.pack(">i", len(payload)) + payload


class Check(Protocol):
    """Takes whole answers and says how many they were; raises `LoadFailed` for one that is wrong."""

    answer_bytes: int

    def __call__(self, answers: memoryview) -> int: ...


class ProduceCheck:
    """Answers to one partition's requests are equal in length: error, correlation id and base offset are compared."""

    def __init__(
        self,
        sample: bytes,
        sample_offset: int,
        *,
        partition: int,
        first_id: int,
        first_offset: int,
        records_per_batch: int,
    ) -> None:
        error_at = sample.index(struct.pack(">ihq", partition, 0, sample_offset), 8) + 4
        self.answer_bytes = len(sample)
        rest = self.answer_bytes - error_at - 10
        self._struct = struct.Struct(f">ii{error_at - 8}xhq{rest}x")
        self._size = self.answer_bytes - 4
        self._id = first_id
        self._offset = first_offset
        self._records = records_per_batch

    def __call__(self, answers: memoryview) -> int:
        expected_id, expected_offset, records, expected_size = self._id, self._offset, self._records, self._size
        count = 0
        for size, correlation_id, error, offset in self._struct.iter_unpack(answers):
            if error or size != expected_size or correlation_id != expected_id or offset != expected_offset:
                raise LoadFailed(
                    f"answer {correlation_id} (expected {expected_id}): error {error}, base offset {offset}"
                    f" (expected {expected_offset}), {size} bytes (expected {expected_size})"
                )
            expected_id += 1
            expected_offset += records
            count += 1
        self._id, self._offset = expected_id, expected_offset
        return count


class EchoCheck:
    """The bare copier's answers: their length and the correlation id."""

    answer_bytes = 8

    def __init__(self, first_id: int) -> None:
        self._id = first_id

    def __call__(self, answers: memoryview) -> int:
        count = 0
        for size, correlation_id in struct.iter_unpack(">ii", answers):
            if size != 4 or correlation_id != self._id + count:
                raise LoadFailed(f"the bare copier answered {correlation_id}")
            count += 1
        self._id += count
        return count


def pump(sock: socket.socket, frames: Frames, check: Check, depth: int) -> float:
    """Sends all frames with at most `depth` unanswered; the seconds it took."""
    buffer = bytearray(1 << 16)
    view = memoryview(buffer)
    size = check.answer_bytes
    filled = 0
    sent = min(depth, frames.count)
    answered = 0
    total = frames.count
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        frames.send(sock, 0, sent)
        while answered < total:
            got = sock.recv_into(view[filled:])
            if not got:
                raise LoadFailed("the server closed the connection")
            filled += got
            whole = filled - filled % size
            if not whole:
                continue
            count = check(view[:whole])
            answered += count
            if filled > whole:
                buffer[: filled - whole] = buffer[whole:filled]
            filled -= whole
            more = min(count, total - sent)
            if more:
                frames.send(sock, sent, more)
                sent += more
        return time.perf_counter() - started
    finally:
        gc.enable()


class ProduceLoad:
    """One producer on one connection, for as many timed runs as one likes."""

    def __init__(
        self,
        port: int,
        topic: str,
        records_per_batch: int,
        *,
        idempotent: bool = True,
        partition: int = 0,
        tls: ssl.SSLContext | None = None,
        prove: Callable[[RawConnection], object] = lambda _: None,
    ) -> None:
        self.connection = RawConnection(port, timeout_s=120, tls=tls)
        prove(self.connection)  # before anything is asked
        self._topic = topic
        self._partition = partition
        self._records = records_per_batch
        self._pid, self._epoch = self.connection.init_producer_id() if idempotent else (-1, -1)
        self._sent = 0
        self._first_offset = -1
        self._sample = b""
        self._calibrate()

    def close(self) -> None:
        self.connection.close()

    @property
    def sent_records(self) -> int:
        return self._sent * self._records

    def _frames(self, count: int) -> Frames:
        frames = Frames(
            self._topic,
            self._records,
            count,
            pid=self._pid,
            epoch=self._epoch,
            sequence=self._sent * self._records,
            first_id=self._sent + 1,
            partition=self._partition,
        )
        self._sent += count
        return frames

    def _calibrate(self) -> None:
        """One request read by kio tells the layout of all that follow."""
        self._frames(1).send(self.connection.socket, 0, 1)
        data = self.connection.receive_bytes()
        kind = message("produce", PRODUCE_VERSION)
        answer = kind.read_response(data, kind.read_header(data, 0)[1])[0]
        part = answer.responses[0].partition_responses[0]
        if part.error_code:
            raise LoadFailed(f"the first batch was refused: {part.error_code.name}")
        self._first_offset = part.base_offset
        self._sample = struct.pack(">i", len(data)) + data

    def run(self, requests: int, depth: int) -> Rate:
        first_id = self._sent + 1
        frames = self._frames(requests)
        check = ProduceCheck(
            self._sample,
            self._first_offset,
            partition=self._partition,
            first_id=first_id,
            first_offset=self._first_offset + (first_id - 1) * self._records,
            records_per_batch=self._records,
        )
        seconds = pump(self.connection.socket, frames, check, depth)
        return Rate(requests, requests * self._records, requests * frames.frame_bytes, seconds)

    def run_for(self, seconds: float, depth: int, *, most_requests: int = 2_000_000) -> Rate:
        """A short run finds how many requests fill the time; the long one is measured."""
        pilot = self.run(max(depth * 4, 32), depth)
        pilot = self.run(max(depth * 4, int(pilot.requests_per_s * 0.2)), depth)
        wanted = int(pilot.requests_per_s * seconds)
        return self.run(max(depth * 4, min(most_requests, wanted)), depth)


def bare_copy_rate(port: int, records_per_batch: int, requests: int, depth: int) -> Rate:
    """The same frames, sent to `bench.bare copy`."""
    frames = Frames("bare", records_per_batch, requests, pid=1 << 33, epoch=0)
    with RawConnection(port, timeout_s=120) as connection:
        seconds = pump(connection.socket, frames, EchoCheck(1), depth)
    return Rate(requests, requests * records_per_batch, requests * frames.frame_bytes, seconds)
