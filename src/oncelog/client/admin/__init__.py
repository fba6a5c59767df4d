"""Topics, configurations, offsets, groups, producers, users: what a command line needs."""

from oncelog.client.admin.admin import Admin
from oncelog.client.admin.scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
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
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "UserScramCredentialAlteration",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]
