"""The lease, for every partition named. All partitions of one request get the same pid and generation."""

import datetime
from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import ProducerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from oncelog.wire.own import LEASE_PID_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePidPartition:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LEASE_PID_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """The code, or 0: then the rest of the fields count."""
    error_message: str | None = field(metadata={"kafka_type": "string"})
    producer_id: ProducerId = field(metadata={"kafka_type": "int64"})
    """1 to 2^32 - 1; -1 where nothing was granted."""
    generation: i16 = field(metadata={"kafka_type": "int16"})
    """Where the producer's generations start: random, from 0 to 2^15 - 1."""
    sequence: i32 = field(metadata={"kafka_type": "int32"})
    """The sequence of the first record: 0."""
    expire_ms: i64 = field(metadata={"kafka_type": "int64"})
    """How long the lease may be used, in milliseconds from now. It is never renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePidTopicResult:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LEASE_PID_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[LeasePidPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePidResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LEASE_PID_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(
        metadata={"kafka_type": "timedelta_i32"},
        default=i32Timedelta.parse(datetime.timedelta(milliseconds=0)),
    )
    topics: tuple[LeasePidTopicResult, ...]
