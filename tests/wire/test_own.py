"""lease_pid, resume_pid and describe_leases byte by byte: these bytes are the ones of docs/protocol.md."""

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from oncelog.wire.messages import schema
from tests.raw import encode_request, make, message

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"

LEASE_REQUEST = {"topics": [{"name": "orders", "partitions": [0, 1]}]}
LEASE_ANSWER = {
    "topics": [
        {
            "name": "orders",
            "partitions": [
                {
                    "partition_index": 0,
                    "error_code": ErrorCode.none,
                    "error_message": None,
                    "producer_id": 101,
                    "generation": 4660,
                    "sequence": 0,
                    "expire_ms": 86_400_000,
                },
                {
                    "partition_index": 1,
                    "error_code": ErrorCode.unknown_topic_or_partition,
                    "error_message": "no",
                    "producer_id": -1,
                    "generation": -1,
                    "sequence": -1,
                    "expire_ms": -1,
                },
            ],
        }
    ]
}
RESUME_REQUEST = {
    "timeout": 5000,
    "producers": [{"producer_id": 101, "generation": 4661, "topics": [{"name": "orders", "partitions": [0]}]}],
}
RESUME_ANSWER = {
    "producers": [
        {
            "producer_id": 101,
            "topics": [
                {
                    "name": "orders",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "error_code": ErrorCode.none,
                            "error_message": None,
                            "generation": 4661,
                            "last_sequence": 41,
                            "fence_offset": 42,
                        }
                    ],
                }
            ],
        }
    ]
}
DESCRIBE_REQUEST = {"topics": [{"name": "orders", "partitions": [0, 1]}]}
DESCRIBE_ANSWER = {
    "topics": [
        {
            "name": "orders",
            "partitions": [
                {
                    "partition_index": 0,
                    "error_code": ErrorCode.none,
                    "error_message": None,
                    "capacity": 65_536,
                    "lifetime_ms": 86_400_000,
                    "producers": [
                        {
                            "producer_id": 101,
                            "generation": 4660,
                            "last_sequence": 41,
                            "last_offset": 42,
                            "last_timestamp_ms": 1_700_000_000_000,
                            "lease_left_ms": 3_600_000,
                        },
                        {
                            "producer_id": 1 << 32,
                            "generation": 0,
                            "last_sequence": 0,
                            "last_offset": 43,
                            "last_timestamp_ms": 1_700_000_000_000,
                            "lease_left_ms": -1,
                        },
                    ],
                },
                {
                    "partition_index": 1,
                    "error_code": ErrorCode.unknown_topic_or_partition,
                    "error_message": "no",
                    "capacity": -1,
                    "lifetime_ms": -1,
                    "producers": [],
                },
            ],
        }
    ]
}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lease_pid request": ("lease_pid", "request", LEASE_REQUEST),
    "lease_pid response": ("lease_pid", "response", LEASE_ANSWER),
    "resume_pid request": ("resume_pid", "request", RESUME_REQUEST),
    "resume_pid response": ("resume_pid", "response", RESUME_ANSWER),
    "describe_leases request": ("describe_leases", "request", DESCRIBE_REQUEST),
    "describe_leases response": ("describe_leases", "response", DESCRIBE_ANSWER),
}


def documented(title: str) -> bytes:
    """The bytes in the block under this heading: hexadecimal at the start of each line, words behind two spaces."""
    text = DOCUMENT.read_text()
    block = text.split(f"### Example: {title}\n", 1)[1].split("```\n", 1)[1].split("```", 1)[0]
    lines = [re.split(r" {2,}", line, maxsplit=1)[0] for line in block.splitlines()]
    return bytes.fromhex("".join(lines))


def frame(name: str, side: str, values: dict[str, Any]) -> bytes:
    kind = message(name, 0)
    if side == "request":
        payload = encode_request(kind, make(kind.request, values), 7, "me")
    else:
        payload = schema(name, 0).encode(make(kind.response, values), 7)
    return len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("title", CASES)
def test_the_document_shows_the_bytes_that_are_sent(title: str) -> None:
    assert frame(*CASES[title]).hex(" ") == documented(title).hex(" ")


@pytest.mark.parametrize("title", CASES)
def test_the_documented_bytes_are_read_back(title: str) -> None:
    name, side, values = CASES[title]
    kind = message(name, 0)
    entity_type = getattr(kind, side)
    payload = documented(title)[4:]
    _, at = entity_reader(entity_type.__header_schema__)(payload, 0)
    assert entity_reader(entity_type)(payload, at) == (make(entity_type, values), len(payload) - at)


def test_keys_are_the_documented_ones() -> None:
    assert message("lease_pid", 0).request.__api_key__ == 20300
    assert message("resume_pid", 0).request.__api_key__ == 20301
    assert message("describe_leases", 0).request.__api_key__ == 20302


def test_kio_writes_what_it_reads() -> None:
    kind = message("resume_pid", 0)
    entity = make(kind.request, RESUME_REQUEST)
    out = BytesIO()
    entity_writer(kind.request)(out, entity)
    assert entity_reader(kind.request)(out.getvalue(), 0)[0] == entity
