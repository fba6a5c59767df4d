"""The rights of clients. Handlers ask `Rights`, and each connection has its own.

Where no authorizer is set everybody has every right, and nothing is looked up. Elsewhere the rules are those of the
document that the brokers agree by, and what was decided once is remembered until one of them changes.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from oncelog.security.acls import Acls, principals_of
from oncelog.security.bindings import Binding
from oncelog.security.brokers import is_broker
from oncelog.security.documents import Kind
from oncelog.security.hosts import plain_host
from oncelog.security.operations import Operation, Resource
from oncelog.server.endpoints import endpoints
from oncelog.server.operations import KNOWN
from oncelog.server.secure import AUTHORIZER
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

ANONYMOUS: Final = "User:ANONYMOUS"
MOST_REMEMBERED: Final = 50_000  # decisions, of all principals together: some 20 MB
OF_AN_AUTHORIZER: Final = ("super.users", "allow.everyone.if.no.acl.found")  # without one they say nothing
MOST_CHARACTERS: Final = 249  # of a name in them: as many as a topic may have, and hardly a group has more
MOST_TOLD: Final = 3
UNREAD: Final = (
    "%s: %d access rules cannot be read, and until they are gone %s: %r. A broker that can read them can take them "
    "away, and `oncelog acls remove --all` takes away all there are"
)
UNHEEDED: Final = {
    Kind.ACLS: "%s: access rules: %d. They count for nothing, and everybody may do everything: start with --secure, or "
    f"with authorizer.class.name={AUTHORIZER}",
    Kind.USERS: "%s: users with a password: %d. No listener asks for one, and everybody gets in: start with --secure, "
    "or with a listener of SASL_SSL",
}

logger = logging.getLogger(__name__)


class Rights(Protocol):
    """The rights of one principal, at one host. What it answers may change with each step of the loop."""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool: ...

    def may_somewhere(self, operation: Operation, resource: Resource) -> bool:
        """Whether there may be a name for which it may."""
        ...

    def operations(self, resource: Resource, name: str) -> int:
        """All that it may, as bits (KIP-430)."""
        ...


class EveryRight:
    """Rights where nothing is asked."""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return True

    def may_somewhere(self, operation: Operation, resource: Resource) -> bool:
        return True

    def operations(self, resource: Resource, name: str) -> int:
        return KNOWN[resource]


EVERY_RIGHT: Final = EveryRight()


class _Remembered:
    """The number of decisions, and the rights that hold them."""

    def __init__(self) -> None:
        self.rights: WeakValueDictionary[tuple[str, str], GivenRights] = WeakValueDictionary()
        self._count = 0

    def count(self) -> None:
        self._count += 1
        if self._count > MOST_REMEMBERED:
            self.forget()
            self._count = 1

    def forget(self) -> None:
        self._count = 0
        for rights in list(self.rights.values()):
            rights.forget()


class GivenRights:
    """The rights that rules give."""

    __slots__ = ("__weakref__", "_acls", "_granted", "_remembered", "_somewhere", "_who")

    def __init__(self, who: tuple[str, str], acls: Acls, remembered: _Remembered) -> None:
        self._who = who
        self._acls = acls
        self._remembered = remembered
        self._granted: dict[tuple[Resource, str], int] = {}
        self._somewhere: dict[tuple[Operation, Resource], bool] = {}

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        bits = self._granted.get((resource, name))
        if bits is None:
            bits = self._decide(resource, name)
        return bits >> operation & 1 == 1

    def may_somewhere(self, operation: Operation, resource: Resource) -> bool:
        found = self._somewhere.get((operation, resource))
        if found is None:
            found = self._acls.granted_somewhere(*self._who, operation, resource)
            self._somewhere[operation, resource] = found
        return found

    def operations(self, resource: Resource, name: str) -> int:
        bits = self._granted.get((resource, name))
        return (self._decide(resource, name) if bits is None else bits) & KNOWN[resource]

    def _decide(self, resource: Resource, name: str) -> int:
        bits = self._acls.granted(*self._who, resource, name)
        if len(name) <= MOST_CHARACTERS:
            self._remembered.count()
            self._granted[resource, name] = bits
        return bits

    def __len__(self) -> int:
        """The number of remembered decisions."""
        return len(self._granted)

    def forget(self) -> None:
        self._granted.clear()
        self._somewhere.clear()


def unasked(settings: Settings) -> str | None:
    """A warning about settings of rights that nothing asks for; None where there is none."""
    given = [name for name in OF_AN_AUTHORIZER if settings.given.get(name)]
    if settings.authorizer_class_name or not given:
        return None
    count = "counts" if len(given) == 1 else "count"
    return (
        f"{' and '.join(given)} {count} for nothing, and everybody may do everything: rights are asked only with "
        f"authorizer.class.name={AUTHORIZER}"
    )


def unheeded(settings: Settings) -> dict[Kind, str]:
    """Warnings about users and rights that were given earlier and that nothing asks for now, by kind of document."""
    if settings.authorizer_class_name:
        return {}
    asks_for_users = any(each.is_sasl for each in endpoints(settings))
    return {kind: words for kind, words in UNHEEDED.items() if not (kind is Kind.USERS and asks_for_users)}


class Access:
    """The rules of who may do what; the same for all connections."""

    def __init__(self, settings: Settings, topics: Topics) -> None:
        self.is_asked = bool(settings.authorizer_class_name)
        self._told: list[Callable[[], None]] = []
        self._topics = topics
        self._super_users = principals_of(settings.super_users)
        self._acls = Acls(allow_if_none=settings.allow_everyone_if_no_acl_found)
        self._remembered = _Remembered()
        if self.is_asked:
            topics.tell_documents(self._see)
        else:
            if (words := unasked(settings)) is not None:
                logger.warning("%s", words)
            self._unheeded = unheeded(settings)
            topics.tell_documents(self._tell_unheeded)

    def rights(self, principal: str, host: str) -> Rights:
        if not self.is_asked or principal in self._super_users or is_broker(principal):
            return EVERY_RIGHT
        who = (principal, plain_host(host))
        known = self._remembered.rights.get(who)
        if known is None:
            known = self._remembered.rights[who] = GivenRights(who, self._acls, self._remembered)
        return known

    def tell_changes(self, told: Callable[[], None]) -> None:
        """Whenever rights may have become others."""
        self._told.append(told)

    def bindings(self) -> list[Binding]:
        """All rules, as they are now."""
        return list(self._acls.bindings.values())

    def remembered(self) -> dict[tuple[str, str], int]:
        """The number of remembered decisions, by principal and host."""
        return {who: len(rights) for who, rights in self._remembered.rights.items()}

    @property
    def unread(self) -> frozenset[str]:
        """Rules that this version cannot read, by their keys."""
        return self._acls.unread

    def binding(self, key: str) -> Binding | None:
        return self._acls.bindings.get(key)

    def _tell_unheeded(self, kind: Kind) -> None:
        """Tell once of each that it is not heeded."""
        count = len(self._topics.document(kind))
        if count and kind in self._unheeded:
            logger.warning(self._unheeded.pop(kind), self._topics.where_documents_are, count)

    def _see(self, kind: Kind) -> None:
        if kind is not Kind.ACLS:
            return
        self._acls.see(self._topics.document(Kind.ACLS).keys())
        if unread := self._acls.unread:
            what = "nobody but super.users may do anything" if self._acls.is_closed else "they can only allow"
            logger.error(UNREAD, self._topics.where_documents_are, len(unread), what, sorted(unread)[:MOST_TOLD])
        self._remembered.forget()
        for told in self._told:
            told()
