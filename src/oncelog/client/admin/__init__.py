"""Topics, configurations, offsets, groups, producers: what a command line needs."""

from oncelog.client.admin.admin import Admin
from oncelog.client.admin.values import (
    AlterConfig,
    AlterOperation,
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
    PartitionLeases,
    ProducerState,
    ResourceType,
)

AdminClient = Admin  # as confluent-kafka calls it

__all__ = [
    "Admin",
    "AdminClient",
    "AlterConfig",
    "AlterOperation",
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
    "PartitionLeases",
    "ProducerState",
    "ResourceType",
]
