"""Access rules as confluent-kafka shapes them."""

from dataclasses import dataclass
from enum import IntEnum

from oncelog.client.admin.values import ResourceType
from oncelog.client.errors import invalid_argument


class ResourcePatternType(IntEnum):
    """The meaning of a rule's name."""

    ANY = 1  # in filters
    MATCH = 2  # in filters: all rules that concern a resource of that name
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ANY = 1  # in filters
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclPermissionType(IntEnum):
    ANY = 1  # in filters
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One rule. The cluster is the resource BROKER of the name `kafka-cluster`; a host is an address or `*`."""

    restype: ResourceType
    name: str
    resource_pattern_type: ResourcePatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    def __post_init__(self) -> None:
        of_filters = (
            self.restype is ResourceType.ANY
            or self.resource_pattern_type in (ResourcePatternType.ANY, ResourcePatternType.MATCH)
            or self.operation is AclOperation.ANY
            or self.permission_type is AclPermissionType.ANY
        )
        if of_filters or not (self.name and self.principal and self.host):
            raise invalid_argument(f"a rule says all of what it means, which this one does not: {self}")


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """A filter for access rules; None and ANY match all."""

    restype: ResourceType = ResourceType.ANY
    name: str | None = None
    resource_pattern_type: ResourcePatternType = ResourcePatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
