"""Configurations of topics, brokers and groups, read and changed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oncelog.client.admin.timeouts import Timeouts, refusal
from oncelog.client.admin.values import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from oncelog.client.errors import KafkaException, invalid_argument
from oncelog.client.net.retry import Outcomes

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

GROUP = 32


async def describe_configs(
    brokers: "Brokers", resources: Sequence[ConfigResource], timeouts: Timeouts
) -> Outcomes[ConfigResource]:
    def build(asked: Sequence[ConfigResource]) -> Callable[[Any], Any]:
        return lambda spoken: spoken.new(
            "DescribeConfigsRequest",
            resources=tuple(
                spoken.new(
                    "DescribeConfigsResource",
                    resource_type=_number(each.type),
                    resource_name=each.name,
                    configuration_keys=None,
                )
                for each in asked
            ),
            include_synonyms=False,
            include_documentation=False,
        )

    return await _ask(brokers, resources, timeouts, "describe_configs", build, _entries)


def _entries(answer: Any) -> list[tuple[Any, object]]:
    return [
        (each, refusal(each.error_code, each.error_message) or {entry.name: _entry(entry) for entry in each.configs})
        for each in answer.results
    ]


def _entry(said: Any) -> ConfigEntry:
    source = int(getattr(said, "config_source", 0))
    return ConfigEntry(
        said.name,
        said.value,
        ConfigSource(source) if source in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN,
        bool(said.read_only),
        bool(said.is_sensitive),
        getattr(said, "documentation", None),
    )


async def incremental_alter_configs(
    brokers: "Brokers", resources: Sequence[ConfigResource], timeouts: Timeouts, *, validate_only: bool
) -> Outcomes[ConfigResource]:
    def build(asked: Sequence[ConfigResource]) -> Callable[[Any], Any]:
        return lambda spoken: spoken.new(
            "IncrementalAlterConfigsRequest",
            resources=tuple(
                spoken.new(
                    "AlterConfigsResource",
                    resource_type=_number(each.type),
                    resource_name=each.name,
                    configs=tuple(
                        spoken.new(
                            "AlterableConfig",
                            name=change.name,
                            config_operation=int(change.operation),
                            value=change.value,
                        )
                        for change in each.changes
                    ),
                )
                for each in asked
            ),
            validate_only=validate_only,
        )

    def read(answer: Any) -> list[tuple[Any, object]]:
        return [(each, refusal(each.error_code, each.error_message)) for each in answer.responses]

    return await _ask(brokers, resources, timeouts, "incremental_alter_configs", build, read)


async def _ask(
    brokers: "Brokers",
    resources: Sequence[ConfigResource],
    timeouts: Timeouts,
    name: str,
    build: Callable[[Sequence[ConfigResource]], Callable[[Any], Any]],
    read: Callable[[Any], list[tuple[Any, object]]],
) -> Outcomes[ConfigResource]:
    """A broker is asked about itself; about topics and groups, any."""
    given = {(_number(each.type), each.name): each for each in resources}

    async def ask_node(node_id: int, asked: list[ConfigResource]) -> Outcomes[ConfigResource]:
        node = None if node_id < 0 else node_id
        answer = await brokers.request(node, name, build(asked), timeout_ms=timeouts.request_timeout_ms)
        told = {(int(said.resource_type), str(said.resource_name)): outcome for said, outcome in read(answer)}
        return {given[key]: outcome for key, outcome in told.items() if key in given}

    async def once(left: list[ConfigResource]) -> Outcomes[ConfigResource]:
        by_node: dict[int, list[ConfigResource]] = {}
        outcomes: Outcomes[ConfigResource] = {}
        for each in left:
            try:
                by_node.setdefault(_node(each), []).append(each)
            except KafkaException as failure:
                outcomes[each] = failure
        return outcomes | await timeouts.ask_nodes(by_node, ask_node)

    outcomes: Outcomes[ConfigResource] = await timeouts.ask(given.values(), once)
    return outcomes


def _number(kind: ResourceType) -> int:
    """Groups have another one here than in access rules."""
    return GROUP if kind is ResourceType.GROUP else int(kind)


def _node(resource: ConfigResource) -> int:
    if resource.type is not ResourceType.BROKER or resource.name == "":
        return -1
    try:
        return int(resource.name)
    except ValueError:
        raise invalid_argument(f"a broker's name is its node id, not {resource.name!r}") from None
