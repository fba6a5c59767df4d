"""Quotas of users, client ids and addresses, read and changed."""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.admin.timeouts import Timeouts, refusal
from oncelog.client.admin.values import QuotaEntity
from oncelog.client.net.retry import Outcomes

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers


class Name(Enum):
    ANY = "any"


ANY_NAME: Final = Name.ANY  # in a filter: all that have a quota, the default included
EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # Kafka's ways to match


async def describe_client_quotas(
    brokers: "Brokers", names: Mapping[str, str | Name | None], timeouts: Timeouts, *, is_strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    def build(spoken: Any) -> Any:
        components = tuple(_component(spoken, kind, name) for kind, name in names.items())
        return spoken.new("DescribeClientQuotasRequest", components=components, strict=is_strict)

    answer = await timeouts.ask_controller(brokers, "describe_client_quotas", build)
    failure = refusal(answer.error_code, answer.error_message)
    if failure is not None:
        raise failure
    return {_entity(each): {each.key: float(each.value) for each in each.values} for each in answer.entries or ()}


def _component(spoken: Any, kind: str, name: str | Name | None) -> Any:
    is_any, is_default = name is ANY_NAME, name is None
    return spoken.new(
        "ComponentData",
        entity_type=kind,
        match_type=SPECIFIED if is_any else DEFAULT if is_default else EXACT,
        match=None if is_any or is_default else name,
    )


def _entity(said: Any) -> QuotaEntity:
    return QuotaEntity.of({str(each.entity_type): each.entity_name for each in said.entity})


async def alter_client_quotas(
    brokers: "Brokers",
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    timeouts: Timeouts,
    *,
    validate_only: bool,
) -> Outcomes[QuotaEntity]:
    async def once(left: list[QuotaEntity]) -> Outcomes[QuotaEntity]:
        def build(spoken: Any) -> Any:
            entries = tuple(_alteration(spoken, each, changes[each]) for each in left)
            return spoken.new("AlterClientQuotasRequest", entries=entries, validate_only=validate_only)

        answer = await timeouts.ask_controller(brokers, "alter_client_quotas", build)
        return {_entity(each): refusal(each.error_code, each.error_message) for each in answer.entries}

    return await timeouts.ask(changes, once)


def _alteration(spoken: Any, entity: QuotaEntity, values: Mapping[str, float | None]) -> Any:
    return spoken.new(
        "EntryData",
        entity=tuple(spoken.new("EntityData", entity_type=kind, entity_name=name) for kind, name in entity.names),
        ops=tuple(
            spoken.new("OpData", key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in values.items()
        ),
    )
