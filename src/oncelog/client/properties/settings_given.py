"""Settings out of what an application gave, in its order; the first thing that cannot be meant is refused."""

import logging
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from oncelog.arguments import as_number, check_kind
from oncelog.client.errors import KafkaException, invalid_argument
from oncelog.client.properties.common import CONSUMER, PRODUCER, AdminSettings, ClientSettings
from oncelog.client.properties.consumer import ConsumerSettings
from oncelog.client.properties.producer import ProducerSettings
from oncelog.client.properties.refused import ONLY_IN_C, REFUSED
from oncelog.client.properties.rules import fit_admin, fit_consumer, fit_producer
from oncelog.client.properties.table import ALIASES, PROPERTIES
from oncelog.client.properties.wording import value_of
from oncelog.settings import Kind, Setting, nearest

_log: Final = logging.getLogger("oncelog.client")
_TOPIC_CONFIG: Final = "default.topic.config"
_LOGGER: Final = "logger"
_NAMES: Final = sorted({*PROPERTIES, *ALIASES, *REFUSED, _LOGGER})
_ONLY_IN_C: Final = frozenset(ONLY_IN_C.split())

Given = Mapping[str, Any]
NOTHING_GIVEN: Final[Given] = MappingProxyType({})  # all are keywords
S = TypeVar("S", bound=ClientSettings)


def producer_settings(given: Given, more: Given = NOTHING_GIVEN) -> ProducerSettings:
    return _read(_together(given, more), ProducerSettings, PRODUCER, fit_producer)


def consumer_settings(given: Given, more: Given = NOTHING_GIVEN) -> ConsumerSettings:
    return _read(_together(given, more), ConsumerSettings, CONSUMER, fit_consumer)


def admin_settings(given: Given) -> AdminSettings:
    return _read(_together(given), AdminSettings, "admin client", fit_admin)


def _together(given: Given, more: Given = NOTHING_GIVEN) -> Given:
    """`more` are keywords."""
    words = 'a dict of properties, such as {"bootstrap.servers": "127.0.0.1:9092"}'
    check_kind("the configuration of a client", given, Mapping, words)
    return {**given, **more}


def _read(
    given: Given,
    settings: type[S],
    role: str,
    fit: Callable[[dict[str, Any], frozenset[str]], str | None],
) -> S:
    values: dict[str, Any] = {}
    names: set[str] = set()
    for written, value in _flat(given):
        known = _known(written, value)
        if known is None:
            continue
        parsed = _value(written, known, value)
        if not known.is_for(role):
            _log.warning("%s is a property of a %s and changes nothing in a %s", written, known.roles[0], role)
            continue
        names.add(known.name)
        values[known.key] = parsed
    mine = [known for known in PROPERTIES.values() if known.is_for(role)]
    whole = {known.key: known.default for known in mine} | values
    refusal = fit(whole, frozenset(names))
    if refusal:
        raise invalid_argument(f"Failed to create {role}: {refusal}")
    attributes = {known.attribute: whole[known.attribute] for known in mine if known.attribute is not None}
    return settings(**attributes, logger=given.get(_LOGGER), given=frozenset(names))


def _flat(given: Given) -> Iterator[tuple[str, Any]]:
    """The pairs in their order; confluent-kafka's nested topic configuration is taken for what stands in it."""
    for name, value in given.items():
        if name == _TOPIC_CONFIG and isinstance(value, Mapping):
            yield from value.items()
        else:
            yield str(name), value


def _known(written: str, value: Any) -> Setting | None:
    """The setting of this name; None where there is nothing to read."""
    name = ALIASES.get(written, written)
    if name in PROPERTIES:
        return PROPERTIES[name]
    if written == _LOGGER:
        return None
    if written in REFUSED:
        nothing, reason = REFUSED[written]
        if (_text_of(written, value) or "").strip().lower() in nothing:
            return None
        raise invalid_argument(f'Configuration property "{written}" cannot be honoured: {reason}')
    if written in _ONLY_IN_C:
        raise invalid_argument(f'Property "{written}" must be set through dedicated .._set_..() function')
    near = nearest(written, _NAMES)
    raise invalid_argument(f'No such configuration property: "{written}"; the nearest known one is "{near}"')


def _value(written: str, known: Setting, value: Any) -> Any:
    if known.kind is Kind.CALLABLE:
        return _callable(known, value)
    try:
        return value_of(known, _text_of(written, value))
    except KafkaException as refusal:
        if written == known.name:
            raise
        raise invalid_argument(f"{refusal.error.str()} (given as `{written}`)") from None


def _callable(known: Setting, value: Any) -> Any:
    if callable(value):
        return value
    if known.name.startswith("on_"):
        raise invalid_argument(f"{known.name} requires a callable object")
    raise TypeError(f"expected {known.name} property as a callable function")


def _text_of(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or as_number(value) is not None:
        return str(value)
    raise TypeError(f'expected text, a number or a boolean for "{name}", not {type(value).__name__}')
