"""All properties by name: those of the settings classes and those without effect. One place says what each is."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from oncelog.client.properties.common import ClientSettings
from oncelog.client.properties.consumer import ConsumerSettings
from oncelog.client.properties.producer import ProducerSettings
from oncelog.client.properties.property import Property
from oncelog.client.properties.without_effect import WITHOUT_EFFECT


def _declared(settings: type[ClientSettings]) -> dict[str, Property]:
    found = [
        _property(each.name, each.metadata["about"])
        for each in fields(settings)
        if each.metadata.get("about") is not None
    ]
    return {known.name: known for known in found}


def _property(attribute: str, about: Mapping[str, Any]) -> Property:
    more = dict(about)
    keeps_name = more.pop("keeps_name", False)
    name = more.pop("name", attribute if keeps_name else attribute.replace("_", "."))
    return Property(name=name, attribute=attribute, **more)


HONOURED: Final[Mapping[str, Property]] = _declared(ProducerSettings) | _declared(ConsumerSettings)
PROPERTIES: Final[Mapping[str, Property]] = dict(HONOURED) | {known.name: known for known in WITHOUT_EFFECT}
ALIASES: Final[Mapping[str, str]] = {alias: known.name for known in PROPERTIES.values() for alias in known.aliases}
