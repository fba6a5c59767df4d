"""For every producer and partition: whether older generations are fenced, and the last sequence accepted before."""

import datetime
from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import ProducerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from oncelog.wire.own import RESUME_PID_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePidPartition:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RESUME_PID_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    generation: i16 = field(metadata={"kafka_type": "int16"})
    """The generation that the partition knows now; -1 where it knows none."""
    last_sequence: i32 = field(metadata={"kafka_type": "int32"})
    """H(P): the last sequence accepted, -1 where nothing was."""
    fence_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The offset of the control batch that fences; -1 where nothing was fenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePidTopicResult:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RESUME_PID_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[ResumePidPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePidProducerResult:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RESUME_PID_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    producer_id: ProducerId = field(metadata={"kafka_type": "int64"})
    topics: tuple[ResumePidTopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePidResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RESUME_PID_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(
        metadata={"kafka_type": "timedelta_i32"},
        default=i32Timedelta.parse(datetime.timedelta(milliseconds=0)),
    )
    producers: tuple[ResumePidProducerResult, ...]
