"""A raw Kafka connection: any request of kio's in any version, one after the other or many in flight.

It keeps nothing, retries nothing and checks nothing, so that a test sees what the server really answered.
"""

import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from kio.schema.errors import ErrorCode

from tests.raw.entities import Message, encode_request, make, message

_SIZE = struct.Struct(">i")
LARGEST_ANSWER_BYTES = 256 << 20


def host_and_port(address: str | int) -> tuple[str, int]:
    if isinstance(address, int):
        return "127.0.0.1", address
    host, _, port = address.split(",")[0].rpartition(":")
    return host, int(port)


class ServerClosed(EOFError):
    """The server ended the connection instead of answering."""


class RawConnection:
    def __init__(
        self,
        address: str | int,
        *,
        timeout_s: float = 30,
        client_id: str | None = "raw",
        from_host: str | None = None,  # an address of this machine, as another than the usual one
        tls: ssl.SSLContext | None = None,
    ) -> None:
        source = None if from_host is None else (from_host, 0)
        self.socket = socket.create_connection(host_and_port(address), timeout=timeout_s, source_address=source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.client_id = client_id
        self._correlation_id = 0
        self._asked: list[tuple[int, Message]] = []
        self._held: bytearray | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # --- frames -----------------------------------------------------------------------------------------------

    def send_bytes(self, payload: bytes) -> None:
        """One frame: the length, then these bytes."""
        frame = _SIZE.pack(len(payload)) + payload
        if self._held is None:
            self.socket.sendall(frame)
        else:
            self._held += frame

    @contextmanager
    def in_one_piece(self) -> Iterator[None]:
        """What is sent meanwhile arrives together."""
        self._held = bytearray()
        yield
        held, self._held = self._held, None
        self.socket.sendall(held)

    def receive_bytes(self) -> bytes:
        size = _SIZE.unpack(self._exactly(4))[0]
        if not 0 <= size <= LARGEST_ANSWER_BYTES:
            raise ValueError(f"the server announced an answer of {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        at = 0
        while at < size:
            try:
                got = self.socket.recv_into(view[at:])
            except ConnectionResetError as error:
                raise ServerClosed("the server reset the connection") from error
            if not got:
                raise ServerClosed("the server closed the connection")
            at += got
        return bytes(buffer)

    # --- requests ---------------------------------------------------------------------------------------------

    def ask(self, name: str, version: int, *, answered: bool = True, **values: Any) -> None:
        """Sends without waiting; answers are taken by `answer()` in the same order."""
        kind = message(name, version)
        self._correlation_id += 1
        if answered:
            self._asked.append((self._correlation_id, kind))
        self.send_bytes(encode_request(kind, make(kind.request, values), self._correlation_id, self.client_id))

    def forget_asked(self) -> None:
        """The answer to the last request is taken by `receive_bytes`."""
        self._asked.pop()

    def answer(self) -> Any:
        correlation_id, kind = self._asked.pop(0)
        data = self.receive_bytes()
        header, at = kind.read_header(data, 0)
        if header.correlation_id != correlation_id:
            raise ValueError(f"asked as {correlation_id}, answered as {header.correlation_id}")
        return kind.read_response(data, at)[0]

    def call(self, name: str, version: int, **values: Any) -> Any:
        self.ask(name, version, **values)
        return self.answer()

    # --- the questions that most tests ask --------------------------------------------------------------------

    def ask_produce(
        self, topic: str, partition: int, records: bytes | None, *, acks: int = -1, version: int = 9
    ) -> None:
        data = {"name": topic, "partition_data": [{"index": partition, "records": records}]}
        self.ask(
            "produce",
            version,
            answered=acks != 0,
            transactional_id=None,
            acks=acks,
            timeout=10_000,
            topic_data=[data],
        )

    def produce_answer(self) -> Any:
        return self.answer().responses[0].partition_responses[0]

    def produce(self, topic: str, partition: int, records: bytes | None, *, acks: int = -1, version: int = 9) -> Any:
        """The answer about the partition: error_code, base_offset, log_start_offset, ..."""
        self.ask_produce(topic, partition, records, acks=acks, version=version)
        return self.produce_answer()

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 64 << 20,
        partition_max_bytes: int = 64 << 20,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        version: int = 11,
    ) -> Any:
        """The answer about the partition: error_code, high_watermark, records, ..."""
        wanted = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": partition_max_bytes,
        }
        answer = self.call(
            "fetch",
            version,
            replica_id=-1,
            max_wait=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic, "partitions": [wanted]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        return answer.responses[0].partitions[0]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int, *, version: int = 8) -> Any:
        """The answer about the partition: error_code, timestamp, offset. -1 latest, -2 earliest, -3 max timestamp."""
        wanted = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp_ms}
        topics = [{"name": topic, "partitions": [wanted]}]
        answer = self.call("list_offsets", version, replica_id=-1, isolation_level=0, topics=topics)
        return answer.topics[0].partitions[0]

    def init_producer_id(self, *, patience_s: float = 20) -> tuple[int, int]:
        """(pid, epoch). Kafka's coordinator answers with an error and pid -1 while it loads: ask again."""
        give_up = time.monotonic() + patience_s
        while True:
            answer = self.call("init_producer_id", 4, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1)
            if answer.error_code is ErrorCode.none:
                return answer.producer_id, answer.producer_epoch
            if time.monotonic() > give_up:
                raise TimeoutError(f"no producer id: {answer.error_code.name}")
            time.sleep(0.1)

    def describe_producers(self, topic: str, partition: int) -> Any:
        """The answer about the partition: error_code, active_producers."""
        answer = self.call("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [partition]}])
        return answer.topics[0].partitions[0]

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: dict[str, str] | None = None,
        *,
        wait: bool = True,
        patience_s: float = 20,
    ) -> ErrorCode:
        """Creates it and, on success, waits until every partition takes a question: Kafka's are not there at once."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        answer = self.call("create_topics", 5, topics=[topic], timeout=20_000, validate_only=False)
        error: ErrorCode = answer.topics[0].error_code
        if error is ErrorCode.none and wait:
            self.await_leaders(name, range(partitions), patience_s)
        return error

    def await_leaders(self, topic: str, partitions: Sequence[int], patience_s: float = 20) -> None:
        give_up = time.monotonic() + patience_s
        for partition in partitions:
            while (error := self.offset_at(topic, partition, -1).error_code) is not ErrorCode.none:
                if time.monotonic() > give_up:
                    raise TimeoutError(f"{topic}-{partition} is not there after {patience_s} s: {error.name}")
                time.sleep(0.02)

    def delete_topic(self, name: str) -> ErrorCode:
        answer = self.call("delete_topics", 5, topic_names=[name], timeout=20_000)
        error: ErrorCode = answer.responses[0].error_code
        return error
