"""The limits of groups by the settings, in both protocols; for a group of KIP-848 with configs of its own, by those."""

from oncelog.security.documents import Document, Kind
from oncelog.server.group_configs import NOTHING, Own, effective, own_of
from oncelog.server.groups.consumer.values import ConsumerLimits
from oncelog.server.groups.messages import GroupLimits
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

BOTH_WAYS = "bidirectional"


def limits_of(settings: Settings) -> GroupLimits:
    return GroupLimits(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_members=settings.group_max_size,
        max_pending_members=settings.group_max_size,
    )


def consumer_limits_of(settings: Settings, own: Own = NOTHING) -> ConsumerLimits:
    """`own`: the configs of one group."""
    values = effective(settings, own)
    return ConsumerLimits(
        session_timeout_ms=values["consumer.session.timeout.ms"],
        heartbeat_interval_ms=values["consumer.heartbeat.interval.ms"],
        assignment_interval_ms=values["consumer.assignment.interval.ms"],
        max_members=settings.group_consumer_max_size,
        assignors=settings.group_consumer_assignors,
        may_upgrade=settings.group_consumer_migration_policy in ("upgrade", BOTH_WAYS),
        may_downgrade=settings.group_consumer_migration_policy in ("downgrade", BOTH_WAYS),
        max_classic_members=settings.group_max_size,
    )


class OwnLimits:
    def __init__(self, settings: Settings, topics: Topics) -> None:
        self.common = consumer_limits_of(settings)
        self._settings = settings
        self._topics = topics
        self._document: Document = {}
        self._found: dict[str, ConsumerLimits] = {}  # what was looked up since it changed
        topics.tell_documents(self._see)

    def of(self, group_id: str) -> ConsumerLimits:
        """Asked at each heartbeat, so that what is set counts from the next one on."""
        if group_id not in self._document:
            return self.common
        found = self._found.get(group_id)
        if found is None:
            own = own_of(self._document, group_id)
            found = self._found[group_id] = consumer_limits_of(self._settings, own)
        return found

    def _see(self, kind: Kind) -> None:
        if kind is Kind.GROUP_CONFIGS:
            self._document = self._topics.document(kind)
            self._found = {}
