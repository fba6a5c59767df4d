"""All properties by name: those of the settings classes and those without effect. One place says what each is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from oncelog.client.properties.common import CONSUMER, PRODUCER, ClientSettings
from oncelog.client.properties.consumer import ConsumerSettings
from oncelog.client.properties.producer import ProducerSettings
from oncelog.client.properties.without_effect import WITHOUT_EFFECT
from oncelog.settings import Setting
from oncelog.settings.declaring import declared

_COMMON: Final = declared(ClientSettings)


def _own(settings: type[ClientSettings], role: str) -> dict[str, Setting]:
    """Properties that only clients of this role take."""
    return {name: replace(each, roles=(role,)) for name, each in declared(settings).items() if name not in _COMMON}


HONOURED: Final[Mapping[str, Setting]] = _COMMON | _own(ProducerSettings, PRODUCER) | _own(ConsumerSettings, CONSUMER)
PROPERTIES: Final[Mapping[str, Setting]] = dict(HONOURED) | {known.name: known for known in WITHOUT_EFFECT}
ALIASES: Final[Mapping[str, str]] = {alias: known.name for known in PROPERTIES.values() for alias in known.aliases}


def for_role(properties: Mapping[str, Any], role: str) -> dict[str, Any]:
    """The properties without those that concern only clients of another role. An unknown one stays, and is refused."""
    known = {name: PROPERTIES.get(ALIASES.get(name, name)) for name in properties}
    return {name: value for name, value in properties.items() if (each := known[name]) is None or each.is_for(role)}
