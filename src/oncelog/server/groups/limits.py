"""What the settings let groups be, in both protocols."""

from oncelog.server.group_configs import NOTHING, Own, effective
from oncelog.server.groups.consumer.values import ConsumerLimits
from oncelog.server.groups.messages import GroupLimits
from oncelog.server.settings import Settings

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
