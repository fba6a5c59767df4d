"""DescribeConfigs, versions 1 to 4 (KIP-133, KIP-226 sources and synonyms, KIP-569 types and documentation)."""

from typing import Any

from oncelog.security.operations import Operation
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.config_resources import (
    Entry,
    Synonym,
    demand_configs,
    describe,
)
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    resources = {(each.resource_type, each.resource_name): each for each in request.resources}
    results = await call.each(resources.values(), lambda asked: _result(asked, request, call))
    return call.new("DescribeConfigsResponse", results=results)


def _result(asked: Any, request: Any, call: Call) -> Any:
    code, message = ErrorCode.none, None
    entries: list[Entry] = []
    try:
        demand_configs(call.rights, Operation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name)
        entries = describe(call.broker.topics, asked.resource_type, asked.resource_name)
    except KafkaError as refusal:
        code, message = refusal.code, refusal.message
    wanted = None if asked.configuration_keys is None else frozenset(asked.configuration_keys)
    return call.new(
        "DescribeConfigsResult",
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(_config(entry, request, call) for entry in entries if wanted is None or entry.name in wanted),
    )


def _config(entry: Entry, request: Any, call: Call) -> Any:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return call.new(
        "DescribeConfigsResourceResult",
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(_synonym(each, call) for each in synonyms),
        config_type=entry.config_type,
        documentation=entry.doc if getattr(request, "include_documentation", False) else None,
    )


def _synonym(synonym: Synonym, call: Call) -> Any:
    return call.new("DescribeConfigsSynonym", name=synonym.name, value=synonym.value, source=synonym.source)


API = Api(key=32, name="describe_configs", versions=(1, 4), handle=handle)
