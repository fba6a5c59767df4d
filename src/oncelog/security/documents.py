"""The documents of brokers about users, rights, quotas and groups' configs: one JSON object each, changed as a whole.

A server that stands alone keeps them in its log of topics, the brokers of a cluster where they agree. Each entry has a
key of its own, so that it can be found and replaced: a user's name, a binding, an entity of quotas, a group.
"""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

MOST_BYTES = 900_000  # what brokers agree by takes no larger value: some 12,000 bindings

Document = Mapping[str, Any]
Change = Callable[[Document], Document]  # may be called again, where somebody else was faster; raises what is refused

DAMAGED: Document = {"no JSON object": None}  # in the place of rules that cannot be read: an entry that nobody can read


class Kind(StrEnum):
    USERS = "users"
    ACLS = "acls"
    QUOTAS = "quotas"
    GROUP_CONFIGS = "group-configs"


class TooMuch(Exception):
    """There is no room for another entry."""


class Damaged(Exception):
    """Not what any broker wrote."""


def encode(kind: Kind, document: Document) -> bytes:
    encoded = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    if len(encoded) > MOST_BYTES:
        raise TooMuch(
            f"all {kind} together may take {MOST_BYTES:,} bytes, and with this they would take {len(encoded):,}"
        )
    return encoded


def decode(kind: Kind, encoded: bytes) -> Document:
    try:
        document = json.loads(encoded)
    except ValueError as error:
        raise Damaged(f"{kind}: no JSON: {error}") from error
    if not isinstance(document, dict):
        raise Damaged(f"{kind}: no JSON object")
    return document
