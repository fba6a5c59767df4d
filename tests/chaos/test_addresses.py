"""No answer leads around the proxy."""

import asyncio
from io import BytesIO
from typing import Any

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_writer

from oncelog.chaos.addresses import rewritten
from oncelog.wire.frames import MalformedFrame
from oncelog.wire.requests import api_key, known_versions, request_schema
from tests.raw.entities import make, message

NODE = {"node_id": 1, "host": "far.away", "port": 9092}


def versions(*names: str) -> list[tuple[str, int]]:
    return [(name, version) for name in names for version in sorted(schema_name_map[name])]


def frame_of(name: str, version: int, fields: dict[str, Any]) -> bytes:
    response = message(name, version).response
    out = BytesIO()
    header = response.__header_schema__
    entity_writer(header)(out, header(correlation_id=-5))
    known = {field: value for field, value in fields.items() if field in response.__dataclass_fields__}
    entity_writer(response)(out, make(response, known))
    return out.getvalue()


def through(name: str, version: int, frame: bytes) -> tuple[Any, list[tuple[str, int]]]:
    asked: list[tuple[str, int]] = []

    async def behind(host: str, port: int) -> tuple[str, int]:
        asked.append((host, port))
        return "127.0.0.1", 50_000

    passed = asyncio.run(rewritten(api_key(name), version, memoryview(frame), behind))
    assert bytes(passed[:4]) == frame[:4]
    return request_schema(name, version).read(passed), asked


@pytest.mark.parametrize(("name", "version"), versions("metadata", "describe_cluster"))
def test_brokers_are_moved_behind_the_proxy(name: str, version: int) -> None:
    node_id = {"broker_id": 1} if name == "describe_cluster" else {"node_id": 1}
    frame = frame_of(name, version, {"brokers": [{**node_id, "host": "far.away", "port": 9092}]})
    answer, asked = through(name, version, frame)
    assert asked == [("far.away", 9092)]
    assert [(each.host, each.port) for each in answer.brokers] == [("127.0.0.1", 50_000)]


@pytest.mark.parametrize(("name", "version"), versions("find_coordinator"))
def test_coordinators_are_moved_behind_the_proxy(name: str, version: int) -> None:
    fields = {**NODE, "coordinators": [{"key": "g", **NODE}]} if version >= 4 else NODE
    answer, asked = through(name, version, frame_of(name, version, fields))
    found = answer.coordinators[0] if version >= 4 else answer
    assert asked == [("far.away", 9092)]
    assert (found.host, found.port, found.node_id) == ("127.0.0.1", 50_000, 1)


def test_a_coordinator_that_was_not_found_stays_not_found() -> None:
    frame = frame_of("find_coordinator", 3, {"error_code": 15, "node_id": -1, "host": "", "port": -1})
    answer, asked = through("find_coordinator", 3, frame)
    assert asked == []
    assert (answer.host, answer.port) == ("", -1)


@pytest.mark.parametrize(
    ("name", "version"),
    [("produce", 10), ("produce", 13), ("fetch", 16), ("fetch", 18), ("share_fetch", 1), ("share_acknowledge", 1)],
)
def test_new_leaders_named_in_an_answer_are_moved_behind_the_proxy(name: str, version: int) -> None:
    answer, asked = through(name, version, frame_of(name, version, {"node_endpoints": [NODE]}))
    assert asked == [("far.away", 9092)]
    assert [(each.host, each.port) for each in answer.node_endpoints] == [("127.0.0.1", 50_000)]


@pytest.mark.parametrize(("name", "version"), [("produce", 9), ("produce", 12), ("fetch", 12), ("fetch", 16)])
def test_an_answer_without_addresses_is_passed_on_as_it_is(name: str, version: int) -> None:
    frame = memoryview(frame_of(name, version, {}))

    async def behind(host: str, port: int) -> tuple[str, int]:
        raise AssertionError("there is no address in it")

    assert asyncio.run(rewritten(api_key(name), version, frame, behind)) is frame


@pytest.mark.parametrize("version", range(5))
def test_versions_that_could_lead_around_the_proxy_are_not_offered(version: int) -> None:
    keys = {api_key("metadata"): (0, 99), api_key("describe_cluster"): (50, 99), 999: (0, 99)}
    fields = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in keys.items()]
    answer, _ = through("api_versions", version, frame_of("api_versions", version, {"api_keys": fields}))
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert offered == {api_key("metadata"): (0, known_versions("metadata")[1]), 999: (0, 99)}


def test_an_answer_in_a_version_that_nobody_knows_is_not_passed_on_where_it_carries_addresses() -> None:
    frame = frame_of("metadata", 12, {"brokers": []})

    async def behind(host: str, port: int) -> tuple[str, int]:
        return host, port

    with pytest.raises(MalformedFrame, match="cannot be rewritten"):
        asyncio.run(rewritten(api_key("metadata"), 99, frame, behind))
    assert asyncio.run(rewritten(api_key("heartbeat"), 99, frame, behind)) is frame
