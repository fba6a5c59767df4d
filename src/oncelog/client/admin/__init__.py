"""Topics, configurations, offsets, groups, producers: what a command line needs."""

from oncelog.client.admin.admin import Admin
from oncelog.client.admin.quotas import ANY_NAME
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
    QuotaEntity,
    Replicas,
    ResourceType,
)

AdminClient = Admin  # as confluent-kafka calls it

__all__ = [
    "ANY_NAME",
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
    "QuotaEntity",
    "Replicas",
    "ResourceType",
]
