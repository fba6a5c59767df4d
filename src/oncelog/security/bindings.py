"""Access rules as Kafka has them: who may or may not do what, to what, from where; and the words they are kept in.

A rule is kept under a key that says all of it, so that the same rule is there once, however often it is made.
"""

from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from oncelog.security.hosts import plain_host
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource

EVERYTHING: Final = "*"  # of a literal pattern: every name; of a rule's host: everywhere
EVERYBODY: Final = "User:*"
SEPARATOR: Final = "\t"


class Pattern(IntEnum):
    ANY = 1  # in filters
    MATCH = 2  # in filters: whatever concerns that name
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    ANY = 1  # in filters
    DENY = 2
    ALLOW = 3


class Invalid(ValueError):
    """Not a rule that can be made, or not a filter that means anything."""


class Binding(NamedTuple):
    """One rule."""

    resource: Resource
    pattern: Pattern
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def key(self) -> str:
        """The name comes last: it alone may hold anything."""
        kinds = (self.permission.name, self.operation.name, self.resource.name, self.pattern.name)
        return SEPARATOR.join((*kinds, self.host, self.principal, self.name))


class Filter(NamedTuple):
    """A filter of rules; a field that it leaves out is not asked."""

    resource: Resource = Resource.ANY
    pattern: Pattern = Pattern.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: Binding) -> bool:
        return (
            (self.resource == Resource.ANY or self.resource == binding.resource)
            and (self.principal is None or self.principal == binding.principal)
            and (self.host is None or self.host == binding.host)
            and (self.operation == Operation.ANY or self.operation == binding.operation)
            and (self.permission == Permission.ANY or self.permission == binding.permission)
            and self._matches_name(binding)
        )

    def _matches_name(self, binding: Binding) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, binding.pattern):
            return False
        if self.name is None or self.name == binding.name:
            return True
        if self.pattern is not Pattern.MATCH:
            return False
        if binding.pattern is Pattern.PREFIXED:
            return self.name.startswith(binding.name)
        return binding.name == EVERYTHING

    @property
    def is_open(self) -> bool:
        """Whether any of several kinds is meant."""
        return (
            Resource.ANY is self.resource
            or Operation.ANY is self.operation
            or Pattern.ANY is self.pattern
            or Permission.ANY is self.permission
        )

    @property
    def only(self) -> Binding | None:
        """The one rule that can match, where it names all of one."""
        if self.name is None or self.principal is None or self.host is None or self.pattern is Pattern.MATCH:
            return None
        if self.is_open:
            return None
        return Binding(
            self.resource, self.pattern, self.name, self.principal, self.host, self.operation, self.permission
        )


def binding_of(key: str) -> Binding:
    """Raises Invalid for what is no rule that this version knows."""
    try:
        permission, operation, resource, pattern, host, principal, name = key.split(SEPARATOR, 6)
        found = Binding(
            Resource[resource], Pattern[pattern], name, principal, host, Operation[operation], Permission[permission]
        )
    except (KeyError, ValueError):
        raise Invalid(f"{key!r} is no rule") from None
    if Pattern.MATCH is found.pattern or Filter(*found).is_open:
        raise Invalid(f"{key!r} is no rule, but a filter")
    return found


def may_deny(key: str) -> bool:
    """Whether a rule that cannot be read may deny something."""
    return not key.startswith(Permission.ALLOW.name + SEPARATOR)


Code = TypeVar("Code", bound=IntEnum)


def _coded(kind: type[Code], number: int, called: str) -> Code:
    try:
        return kind(number)
    except ValueError:
        raise Invalid(f"Invalid {called} UNKNOWN") from None


def new_binding(
    resource: int, pattern: int, name: str, principal: str, host: str, operation: int, permission: int
) -> Binding:
    """A binding by Kafka's numbers, refused in Kafka's words. Raises Invalid."""
    if resource == Resource.CLUSTER and name != CLUSTER_NAME:
        raise Invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise Invalid("Invalid empty resource name")
    binding = Binding(
        _coded(Resource, resource, "resourceType"),
        _coded(Pattern, pattern, "patternType"),
        name,
        principal,
        plain_host(host),
        _coded(Operation, operation, "operation"),
        _coded(Permission, permission, "permissionType"),
    )
    if binding.resource is Resource.ANY:
        raise Invalid("Invalid resourceType ANY")
    if binding.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise Invalid(f"Invalid patternType {binding.pattern.name}")
    if binding.operation is Operation.ANY:
        raise Invalid("Invalid operation ANY")
    if binding.permission is Permission.ANY:
        raise Invalid("Invalid permissionType ANY")
    check_principal(principal)
    if not host or SEPARATOR in host:
        raise Invalid(f"Invalid host {host!r}: an address, or {EVERYTHING}")
    return binding


def check_principal(principal: str) -> None:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name) or SEPARATOR in principal:
        raise Invalid(f"expected a string in format principalType:principalName but got {principal}")


def new_filter(
    resource: int,
    pattern: int,
    name: str | None,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> Filter:
    """A filter by Kafka's numbers. Raises Invalid."""
    return Filter(
        _coded(Resource, resource, "resourceType"),
        _coded(Pattern, pattern, "patternType"),
        name,
        principal,
        None if host is None else plain_host(host),
        _coded(Operation, operation, "operation"),
        _coded(Permission, permission, "permissionType"),
    )
