"""Topics, configurations, offsets, groups, producers, access rules: what a command line needs."""

from oncelog.client.admin.acl_values import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
)
from oncelog.client.admin.admin import Admin
from oncelog.client.admin.values import (
    AlterConfig,
    AlterOperation,
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    DeletedRecords,
    FoundOffset,
    GroupDescription,
    GroupListing,
    GroupOffsets,
    LeaseState,
    MemberDescription,
    Move,
    PartitionLeases,
    ProducerState,
    Replicas,
    ResourceType,
)

AdminClient = Admin  # as confluent-kafka calls it

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "Admin",
    "AdminClient",
    "AlterConfig",
    "AlterOperation",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "DeletedRecords",
    "FoundOffset",
    "GroupDescription",
    "GroupListing",
    "GroupOffsets",
    "LeaseState",
    "MemberDescription",
    "Move",
    "PartitionLeases",
    "ProducerState",
    "Replicas",
    "ResourcePatternType",
    "ResourceType",
]
