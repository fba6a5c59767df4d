"""A batch on its way, and the identity that it travels under."""

from collections.abc import Callable
from typing import Final

from oncelog.producers.sequences import sequence_after
from oncelog.records.build import build_batch
from oncelog.records.header import read_header, stamp_producer
from oncelog.records.read import records_of
from oncelog.slots.identity import Identity, Place

UNSTAMPED: Final = -1


class Batch:
    """Encoded once. Identity and sequence are stamped when it is first sent and stay, unless it provably is not stored.

    `payload` is the engine's: the messages to report on. Everything below `payload` belongs to the Sender; the engine
    may read it. `data` changes only where it is stamped, and never while a request that carries it is under way.
    """

    __slots__ = (
        "attempts",
        "created_ms",
        "data",
        "first_sequence",
        "generation",
        "in_doubt",
        "is_flying",
        "is_reported",
        "max_timestamp_ms",
        "partition",
        "payload",
        "pid",
        "record_count",
        "topic",
    )

    def __init__(
        self, topic: str, partition: int, data: bytearray, record_count: int, created_ms: int, payload: object = None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.data = data
        self.record_count = record_count
        self.created_ms = created_ms  # when its first record was taken: delivery.timeout.ms counts from here
        self.payload = payload
        self.pid = UNSTAMPED
        self.generation = UNSTAMPED
        self.first_sequence = UNSTAMPED
        self.max_timestamp_ms = UNSTAMPED  # of its records; read from the header when the batch is stamped
        self.attempts = 0  # how often it was sent and neither stored nor held up by an earlier one
        self.in_doubt = False  # a request that carried it was lost, or was answered by "perhaps"
        self.is_flying = False
        self.is_reported = False  # and may be stored all the same: its slots stay taken

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.generation)

    @property
    def last_sequence(self) -> int:
        return sequence_after(self.first_sequence, self.record_count - 1)

    @property
    def end_sequence(self) -> int:
        """The slot behind its last one."""
        return sequence_after(self.first_sequence, self.record_count)

    def unstamp(self) -> None:
        """Take identity and sequence off again; only for what provably is not stored."""
        self.pid = self.generation = self.first_sequence = UNSTAMPED

    def stamp(self, identity: Identity, first_sequence: int) -> None:
        self.pid, self.generation, _ = identity
        self.first_sequence = first_sequence
        self.max_timestamp_ms = stamp_producer(self.data, 0, self.pid, self.generation, first_sequence)


Split = Callable[[Batch, int], tuple[Batch, Batch]]


def split_batch(batch: Batch, records: int) -> tuple[Batch, Batch]:
    """The first `records`, and the others, not stamped: same codec, same times. A list or tuple as payload is cut
    along with them; any other payload goes into both, and who wants that cut gives the Sender a `Split` of its own.
    """
    header = read_header(batch.data)
    every = [(record.key, record.value, record.headers, record.timestamp_ms) for record in records_of(batch.data)]
    payload = batch.payload
    payloads = (payload[:records], payload[records:]) if isinstance(payload, list | tuple) else (payload, payload)
    first, second = (
        Batch(
            batch.topic,
            batch.partition,
            build_batch(own, codec=header.codec, is_transactional=header.is_transactional),
            len(own),
            batch.created_ms,
            own_payload,
        )
        for own, own_payload in zip((every[:records], every[records:]), payloads, strict=True)
    )
    return first, second
