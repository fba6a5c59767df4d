"""What each partition remembers of its producers, and how much room it has for leased ones."""

import datetime
from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import ProducerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from oncelog.wire.own import DESCRIBE_LEASES_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLeasesProducer:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DESCRIBE_LEASES_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    producer_id: ProducerId = field(metadata={"kafka_type": "int64"})
    generation: i16 = field(metadata={"kafka_type": "int16"})
    last_sequence: i32 = field(metadata={"kafka_type": "int32"})
    """H(P): the last sequence accepted, -1 where nothing was."""
    last_offset: i64 = field(metadata={"kafka_type": "int64"})
    """Of its last record; -1 where that is not known."""
    last_timestamp_ms: i64 = field(metadata={"kafka_type": "int64"})
    """Of its last batch; -1 where there was none."""
    lease_left_ms: i64 = field(metadata={"kafka_type": "int64"})
    """How much of the lease is left here; 0 when it is over, -1 for a pid that InitProducerId granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLeasesPartition:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DESCRIBE_LEASES_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """The code, or 0: then the rest of the fields count."""
    error_message: str | None = field(metadata={"kafka_type": "string"})
    capacity: i32 = field(metadata={"kafka_type": "int32"})
    """How many leased producers the partition has room for; -1 where there is an error."""
    lifetime_ms: i64 = field(metadata={"kafka_type": "int64"})
    """How long a lease lasts; -1 where there is an error."""
    producers: tuple[DescribeLeasesProducer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLeasesTopicResult:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DESCRIBE_LEASES_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[DescribeLeasesPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLeasesResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DESCRIBE_LEASES_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(
        metadata={"kafka_type": "timedelta_i32"},
        default=i32Timedelta.parse(datetime.timedelta(milliseconds=0)),
    )
    topics: tuple[DescribeLeasesTopicResult, ...]
