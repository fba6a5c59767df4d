"""Our own three messages, in version 0 and with flexible headers. docs/protocol.md describes them byte by byte.

Each class below is one struct of the wire: its fields in their order, with their types. The decorator makes of it what
kio's readers and writers take, as kio's own are made from Kafka's schemas.

The keys spell "OL" in ASCII and lie far from Kafka's, which count up from 0, and from those that vendors begin at
10,000. Stock clients pass over keys that they do not know.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, is_dataclass
from datetime import timedelta
from typing import Any, TypeVar, dataclass_transform, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import ProducerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from oncelog.wire.nulls import without_none

LEASE_PID_KEY = 0x4F4C
RESUME_PID_KEY = 0x4F4D
DESCRIBE_LEASES_KEY = 0x4F4E
OWN_KEYS = {"lease_pid": LEASE_PID_KEY, "resume_pid": RESUME_PID_KEY, "describe_leases": DESCRIBE_LEASES_KEY}

NO_THROTTLE = i32Timedelta.parse(timedelta(0))
WIRE_TYPES: dict[Any, str] = {
    i16: "int16",
    i32: "int32",
    i64: "int64",
    str: "string",
    TopicName: "string",
    ProducerId: "int64",
    ErrorCode: "error_code",
    i32Timedelta: "timedelta_i32",
}

T = TypeVar("T")


def _entity(cls: type[T], role: EntityType, **facts: Any) -> type[T]:
    for name, hint in cls.__annotations__.items():
        inner, _ = without_none(hint)
        element = get_args(inner)[0] if get_origin(inner) is tuple else inner
        if not is_dataclass(element):
            default = cls.__dict__.get(name, MISSING)
            setattr(cls, name, field(metadata={"kafka_type": WIRE_TYPES[element]}, default=default))
    for fact, value in {"type": role, "version": i16(0), "flexible": True, **facts}.items():
        setattr(cls, f"__{fact}__", value)
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _nested(cls: type[T]) -> type[T]:
    return _entity(cls, EntityType.nested)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _request(key: int) -> Callable[[type[T]], type[T]]:
    return lambda cls: _entity(cls, EntityType.request, api_key=i16(key), header_schema=RequestHeader)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _response(key: int) -> Callable[[type[T]], type[T]]:
    return lambda cls: _entity(cls, EntityType.response, api_key=i16(key), header_schema=ResponseHeader)


# lease_pid: a pid for every partition named, which is what a producer asks before its first message. All partitions
# of one request get the same pid and generation.


@_nested
class LeasePidTopic:
    name: TopicName
    partitions: tuple[i32, ...]


@_request(LEASE_PID_KEY)
class LeasePidRequest:
    topics: tuple[LeasePidTopic, ...]


@_nested
class LeasePidPartition:
    partition_index: i32
    error_code: ErrorCode  # or 0: then the rest of the fields count
    error_message: str | None
    producer_id: ProducerId  # 1 to 2^32 - 1; -1 where nothing was granted
    generation: i16  # where the producer's generations start: random, from 0 to 2^15 - 1
    sequence: i32  # of the first record: 0
    expire_ms: i64  # how long the lease may be used, in milliseconds from now; it is never renewed


@_nested
class LeasePidTopicResult:
    name: TopicName
    partitions: tuple[LeasePidPartition, ...]


@_response(LEASE_PID_KEY)
class LeasePidResponse:
    throttle_time: i32Timedelta = NO_THROTTLE
    topics: tuple[LeasePidTopicResult, ...]


# resume_pid: raise the generation of saved producers in the partitions named, and learn what those have accepted.


@_nested
class ResumePidTopic:
    name: TopicName
    partitions: tuple[i32, ...]


@_nested
class ResumePidProducer:
    producer_id: ProducerId
    generation: i16  # to go on with; it must be newer than the one that the partition knows
    topics: tuple[ResumePidTopic, ...]


@_request(RESUME_PID_KEY)
class ResumePidRequest:
    timeout: i32Timedelta  # how long to wait for the fence to be below the high watermark
    producers: tuple[ResumePidProducer, ...]


@_nested
class ResumePidPartition:
    partition_index: i32
    error_code: ErrorCode
    error_message: str | None
    generation: i16  # the one that the partition knows now; -1 where it knows none
    last_sequence: i32  # H(P): the last one accepted, -1 where nothing was
    fence_offset: i64  # of the control batch that fences; -1 where nothing was fenced


@_nested
class ResumePidTopicResult:
    name: TopicName
    partitions: tuple[ResumePidPartition, ...]


@_nested
class ResumePidProducerResult:
    producer_id: ProducerId
    topics: tuple[ResumePidTopicResult, ...]


@_response(RESUME_PID_KEY)
class ResumePidResponse:
    throttle_time: i32Timedelta = NO_THROTTLE
    producers: tuple[ResumePidProducerResult, ...]


# describe_leases: what each partition remembers of its producers, and how much room it has for leased ones.


@_nested
class DescribeLeasesTopic:
    name: TopicName
    partitions: tuple[i32, ...]


@_request(DESCRIBE_LEASES_KEY)
class DescribeLeasesRequest:
    topics: tuple[DescribeLeasesTopic, ...]


@_nested
class DescribeLeasesProducer:
    producer_id: ProducerId
    generation: i16
    last_sequence: i32  # H(P): the last one accepted, -1 where nothing was
    last_offset: i64  # of its last record; -1 where that is not known
    last_timestamp_ms: i64  # of its last batch; -1 where there was none
    lease_left_ms: i64  # how much of the lease is left here; 0 when it is over, -1 for a pid of InitProducerId


@_nested
class DescribeLeasesPartition:
    partition_index: i32
    error_code: ErrorCode  # or 0: then the rest of the fields count
    error_message: str | None
    capacity: i32  # how many leased producers the partition has room for; -1 where there is an error
    lifetime_ms: i64  # how long a lease lasts; -1 where there is an error
    producers: tuple[DescribeLeasesProducer, ...]


@_nested
class DescribeLeasesTopicResult:
    name: TopicName
    partitions: tuple[DescribeLeasesPartition, ...]


@_response(DESCRIBE_LEASES_KEY)
class DescribeLeasesResponse:
    throttle_time: i32Timedelta = NO_THROTTLE
    topics: tuple[DescribeLeasesTopicResult, ...]
