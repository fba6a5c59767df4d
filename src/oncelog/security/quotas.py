"""Quotas: how much a user, a client id or an address may take, which of several counts, and how they are kept.

    entity                          value (in the document of quotas)
    user=alice                      {"producer_byte_rate": 1048576.0}
    client-id=x/user=<default>      {"request_percentage": 50.0}
    ip=10.0.0.7                     {"connection_creation_rate": 5.0}

`<default>` stands for all that have none of their own; the letters of a name that could be taken for something else are
percent-encoded. What counts for a client is what Kafka's ClientQuotaManager finds.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from oncelog.security.documents import Document
from oncelog.security.hosts import plain_host

DEFAULT = "<default>"
USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (CLIENT_ID, USER, IP)  # as Kafka lists them
MOST_KEYS = 32_768  # more do not fit into a document

Entity = tuple[tuple[str, str | None], ...]  # types and names in the order of TYPES; None is the default
Values = Mapping[str, float]
Changes = Mapping[str, float | None]  # None takes a quota away


class Quota(StrEnum):
    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


WHOLE_NUMBERS = {
    Quota.PRODUCE: (2**63 - 1, "a LONG"),
    Quota.FETCH: (2**63 - 1, "a LONG"),
    Quota.CONNECTION: (2**31 - 1, "an INT"),
}
OF_CLIENTS = frozenset((Quota.PRODUCE, Quota.FETCH, Quota.REQUEST, Quota.MUTATION))
OF_ADDRESSES = frozenset((Quota.CONNECTION,))


class Refused(Exception):
    """A refusal in Kafka's words."""


class Unsupported(Refused):
    """A refusal for which Kafka has another error code."""


def entity_of(named: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity of these names. Where a type is named twice, the last one counts."""
    names = dict(named)
    known = tuple((each, names.pop(each)) for each in TYPES if each in names)
    return known + tuple(sorted(names.items()))


# Kept


def key_of(entity: Entity) -> str:
    return "/".join(f"{kind}={DEFAULT if name is None else quote(name, safe='')}" for kind, name in entity)


def read(document: Document) -> dict[Entity, dict[str, float]]:
    """The quotas in a document. Entries that no broker has written are passed over: they are no reason not to serve."""
    found: dict[Entity, dict[str, float]] = {}
    for key, values in document.items():
        entity = _entity_from(key)
        if entity and isinstance(values, Mapping):
            found[entity] = {str(name): float(value) for name, value in values.items() if _is_bound(value)}
    return found


@lru_cache(maxsize=MOST_KEYS)  # whatever changes, nearly all of thousands stay
def _entity_from(key: str) -> Entity:
    parts = [part.partition("=") for part in key.split("/")]
    return entity_of((kind, None if name == DEFAULT else unquote(name)) for kind, _, name in parts if kind in TYPES)


def _is_bound(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def alteration(operations: Iterable[tuple[str, float | None]]) -> Changes | None:
    """None where one key is named twice."""
    found: dict[str, float | None] = {}
    for key, value in operations:
        if key in found:
            return None
        found[key] = value
    return found


def in_words(entity: Entity) -> str:
    """The entity as Kafka's messages name it."""
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{named}}})"


def changed(document: Document, alterations: Iterable[tuple[Entity, Changes]]) -> Document:
    found: dict[str, Any] = dict(document)
    for entity, changes in alterations:
        key = key_of(entity)
        values: dict[str, Any] = {**found.get(key, {}), **changes}
        found[key] = {name: value for name, value in values.items() if value is not None}
        if not found[key]:
            del found[key]
    return found


# Asked for


class Matching(NamedTuple):
    """A filter of DescribeClientQuotas."""

    names: Mapping[str, str | None]  # by type; None is the default
    types: frozenset[str]  # any name
    is_strict: bool

    def fits(self, entity: Entity) -> bool:
        there = dict(entity)
        return (
            all(kind in there and there[kind] == name for kind, name in self.names.items())
            and all(kind in there for kind in self.types)
            and (not self.is_strict or len(there) == len(self.names) + len(self.types))
        )


def matching(components: Iterable[tuple[str, int, str | None]], *, is_strict: bool) -> Matching:
    """A filter of (type, how to match, name). Raises Refused."""
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for kind, how, name in components:
        if not kind:
            raise Refused("Invalid empty entity type.")
        if kind in names or kind in types:
            raise Refused(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise Unsupported(f"Unsupported entity type {kind}")
        if how == 0 and name is None:
            raise Refused("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if how in (1, 2) and name is not None:
            which = "DEFAULT" if how == 1 else "SPECIFIED"
            raise Refused(f"Request specified MATCH_TYPE_{which}, but also specified a match string.")
        if how == 2:
            types.add(kind)
        elif how in (0, 1):
            names[kind] = name
        else:
            raise Refused(f"Unknown match type {how}")
    asked = {*names, *types}
    if IP in asked and len(asked) > 1:
        raise Refused(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return Matching(names, frozenset(types), is_strict)


# Changed


def check(entity: Entity, changes: Changes) -> None:
    """Raises Refused for what Kafka's controller does not take."""
    if not entity:
        raise Refused("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            raise Refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise Refused(f"Empty {kind} not supported")
    known = _quotas_of(entity)
    for name, value in changes.items():
        if value is not None:
            _check_value(known, name, value)


def _quotas_of(entity: Entity) -> frozenset[Quota]:
    names = dict(entity)
    if IP not in names:
        return OF_CLIENTS
    if len(names) > 1:
        raise Refused(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"  # so it is
        )
    address = names[IP]
    if address is not None:
        try:
            ip_address(address)
        except ValueError:
            raise Refused(f"{address} is not a valid IP or resolvable host.") from None
    return OF_ADDRESSES


def _check_value(known: frozenset[Quota], name: str, value: float) -> None:
    if name not in known:
        raise Refused(f"Invalid configuration key {name}")
    if math.isnan(value) or value <= 0:
        raise Refused(f"Quota {name} must be greater than 0")
    largest, what = WHOLE_NUMBERS.get(Quota(name), (sys.float_info.max, "a DOUBLE"))
    if value > largest:
        raise Refused(f"Proposed value for {name} is too large for {what}.")
    if name in WHOLE_NUMBERS and abs(math.floor(value + 1e-6) - value) > 1e-6:
        raise Refused(f"{name} cannot be a fractional value.")


# Looked up


class Limit(NamedTuple):
    bound: float
    user: str  # who shares what it is about; empty where it is the same for all of them
    client_id: str
    is_open: bool  # for client ids that nobody named: a client can make any number of them


class Limits:
    """The limits of one kind, by user and client id. What is not named is empty, and None the default."""

    def __init__(self, quotas: Mapping[Entity, Values], kind: Quota) -> None:
        self._bounds: dict[tuple[str | None, str | None], float] = {}
        for entity, values in quotas.items():
            names = dict(entity)
            if kind in values and IP not in names:
                self._bounds[names.get(USER, ""), names.get(CLIENT_ID, "")] = values[kind]

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def of(self, user: str, client_id: str) -> Limit | None:
        bounds = self._bounds
        pairs = ((user, client_id), (user, None), (user, ""), (None, client_id), (None, None), (None, ""))
        for at_user, at_client in pairs:
            bound = bounds.get((at_user, at_client))
            if bound is not None and (client_id or at_client == ""):
                shared = "" if at_client == "" else client_id
                return Limit(bound, user, shared, is_open=at_client is None)
        if client_id:
            for at_client in (client_id, None):
                bound = bounds.get(("", at_client))
                if bound is not None:
                    return Limit(bound, "", client_id, is_open=at_client is None)
        return None


class Addresses:
    """The number of connections that each address may open in a second."""

    def __init__(self, quotas: Mapping[Entity, Values]) -> None:
        self._bounds: dict[str | None, float] = {}
        for entity, values in quotas.items():
            names = dict(entity)
            if Quota.CONNECTION in values and IP in names:
                address = names[IP]
                self._bounds[None if address is None else plain_host(address)] = values[Quota.CONNECTION]

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def of(self, address: str) -> float | None:
        return self._bounds.get(plain_host(address), self._bounds.get(None))
