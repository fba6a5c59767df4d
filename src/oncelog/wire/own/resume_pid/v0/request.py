"""Resume saved producers: raise their generation in the partitions named, and learn what those have accepted."""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.types import ProducerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta

from oncelog.wire.own import RESUME_PID_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePidTopic:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RESUME_PID_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePidProducer:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RESUME_PID_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    producer_id: ProducerId = field(metadata={"kafka_type": "int64"})
    generation: i16 = field(metadata={"kafka_type": "int16"})
    """The generation to go on with; it must be newer than the one that the partition knows."""
    topics: tuple[ResumePidTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePidRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RESUME_PID_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    timeout: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    """How long to wait for the fence to be below the high watermark."""
    producers: tuple[ResumePidProducer, ...]
