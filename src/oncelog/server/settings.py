"""Every setting of the server, in one table: Kafka's names with dots as underscores, Kafka's units and defaults.

Where a default differs from Kafka's, the line says why. Our own settings begin with `oncelog.`.
A setting is written `log.segment.bytes` wherever a person writes it, and read as `settings.log_segment_bytes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from oncelog.clock import DAY_MS, HOUR_MS, MINUTE_MS
from oncelog.server.entry_settings import EntrySettings
from oncelog.settings import LONG_MAX, Setting, SettingsError
from oncelog.settings.declaring import boolean, declared, integer, long, number, text, texts


@dataclass(slots=True, kw_only=True)
class Settings(EntrySettings):
    # Topics
    num_partitions: int = integer(1, "Partitions of a topic that does not say how many it wants.", low=1)
    auto_create_topics_enable: bool = boolean(True, "Create a topic when a client first names it.")
    delete_topic_enable: bool = boolean(True, "Whether topics can be deleted.")
    default_replication_factor: int = integer(
        1, "Copies of each partition; a single server keeps one.", low=1, high=32_767
    )
    min_insync_replicas: int = integer(1, "Copies that must be in sync for acks=all to be taken.", low=1)
    auto_leader_rebalance_enable: bool = boolean(
        True, "Whether a partition's preferred broker leads it again once it is back."
    )
    leader_imbalance_check_interval_seconds: int = integer(
        300, "How long it has been in sync before.", low=1, high=86_400
    )
    replica_lag_time_max_ms: int = long(
        10_000, "How long a follower may lag behind its leader before others no longer wait for it.", low=1_000
    )
    oncelog_max_partitions: int = integer(
        10_000, "Partitions on this server in all; each one costs file handles and memory.", low=1, high=1_000_000
    )

    # The log; a topic may override these by the names that docs/settings.md lists
    log_segment_bytes: int = integer(2**30, "Size of a segment file.", low=14, dynamic=True)
    log_roll_ms: int | None = long(None, "A segment is closed after this time.", low=1, dynamic=True)
    log_roll_hours: int = integer(168, "The same in hours; log.roll.ms goes before it.", low=1)
    log_retention_ms: int | None = long(None, "Delete records that are older; -1 for never.", low=-1, dynamic=True)
    log_retention_minutes: int | None = integer(None, "The same in minutes; log.retention.ms goes before it.", low=-1)
    log_retention_hours: int = integer(168, "The same in hours; the two above go before it.", low=-1)
    log_retention_bytes: int = long(
        -1, "Delete the oldest segments of a partition above this size; -1 for no limit.", low=-1, dynamic=True
    )
    log_retention_check_interval_ms: int = long(5 * MINUTE_MS, "How often retention and compaction are due.", low=1)
    log_index_interval_bytes: int = integer(4096, "Bytes of log between two entries of the index.", dynamic=True)
    log_cleanup_policy: tuple[str, ...] = texts(
        ("delete",), "What happens to old records.", words=("delete", "compact"), dynamic=True
    )
    log_cleaner_enable: bool = boolean(True, "Whether topics with cleanup.policy=compact are compacted.")
    log_cleaner_backoff_ms: int = long(15_000, "Pause of the compaction when there is nothing to do.", dynamic=True)
    log_cleaner_min_cleanable_ratio: float = number(
        0.5, "Compact when this share of the log was written since the last time.", low=0, high=1, dynamic=True
    )
    log_cleaner_delete_retention_ms: int = long(DAY_MS, "How long a compacted topic keeps tombstones.", dynamic=True)
    log_cleaner_min_compaction_lag_ms: int = long(0, "Records younger than this are not compacted.", dynamic=True)
    log_cleaner_max_compaction_lag_ms: int = long(
        LONG_MAX, "Records older than this are compacted whatever the ratio.", low=1, dynamic=True
    )
    log_message_timestamp_type: str = text(
        "CreateTime",
        "Whether a record keeps the producer's time or gets that of its arrival.",
        words=("CreateTime", "LogAppendTime"),
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = long(
        LONG_MAX, "A record whose own time is further behind the server's clock is refused.", dynamic=True
    )
    log_message_timestamp_after_max_ms: int = long(
        HOUR_MS, "A record whose own time is further ahead of the server's clock is refused.", dynamic=True
    )
    message_max_bytes: int = integer(1_048_588, "Size of the largest batch that is accepted.", dynamic=True)
    compression_type: str = text(
        "producer",
        "Kept and shown; batches stay as the producer compressed them, whatever it says.",
        words=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=True,
    )

    # Safety and recovery
    oncelog_records_check: str = text(
        "compiled",
        "Whether the records behind a good CRC are looked into before they are stored, so that no producer can stop a "
        "reader: `compiled` (by compiled loops where the extra `[columns]` is installed, which take some 130 MB of "
        "memory once large batches arrive, or 20 after `oncelog warm`; elsewhere as `python`), `python` (half a "
        "microsecond a record), `off` (only where a topic asks something of each record).",
        words=("compiled", "python", "off"),
    )
    oncelog_flush: str = text(
        "os",
        "Who waits for the disk: `os` as Kafka (the operating system writes when it likes), `interval` (a flush every "
        "oncelog.flush.interval.ms), `every` (an answer waits for the disk; answers share a flush).",
        words=("os", "interval", "every"),
    )
    oncelog_flush_interval_ms: int = long(1000, "Pause between two flushes with oncelog.flush=interval.", low=1)
    oncelog_recovery_max_bytes: int = long(
        64 * 2**20, "Log that may have to be read again after a crash, over all partitions.", low=2**20
    )

    oncelog_scrub_bytes_per_second: int = long(
        8 * 2**20,
        "Bytes of the log that are read again in the background, to find rot before a reader does; 0 for none.",
        low=0,
        dynamic=True,
    )
    oncelog_scrub_interval_ms: int = long(
        7 * DAY_MS, "From the beginning of one such reading of everything to the next.", low=1
    )

    # Connections
    socket_request_max_bytes: int = integer(100 * 2**20, "Size of the largest request.", low=1024)
    queued_max_request_bytes: int = long(
        256 * 2**20,
        "Memory for requests that have not arrived whole or are not answered yet; reading stops above it. -1 for "
        "no limit, which is Kafka's default.",
        low=-1,
    )
    connections_max_idle_ms: int = long(10 * MINUTE_MS, "An idle connection is closed after this time.", low=1)
    max_connections: int = integer(10_000, "Connections at a time; Kafka has no limit by default.", low=1, dynamic=True)
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "Fetch sessions that are kept, so that readers and the server name only what has changed.", high=10_000
    )
    min_incremental_fetch_session_eviction_ms: int = long(
        120_000, "A fetch session that was not used for so long gives way to another one."
    )
    fetch_max_bytes: int = integer(55 * 2**20, "Size of the largest answer to a Fetch.", low=1024)

    # Producers
    producer_id_expiration_ms: int = integer(
        DAY_MS, "A producer with a pid of InitProducerId is forgotten after this time without a message.", low=1
    )
    oncelog_bind_pids: bool = boolean(
        False,
        "Whether a producer's pid is good for the principal alone to whom it was granted; there are no leases then.",
    )
    oncelog_lease_lifetime_ms: int = long(DAY_MS, "Lifetime of a pid granted by lease_pid.", low=1000)
    oncelog_producer_ring_entries: int = integer(
        65_536,
        "Leased producers that one partition can hold at a time; when it is full, those that wrote once give way.",
        low=16,
        high=2**24,
    )
    oncelog_producer_kafka_entries: int = integer(
        65_536,
        "Producers with pids of InitProducerId that one partition can hold at a time; when it is full, those that "
        "wrote nothing for ten minutes give way to new ones.",
        low=16,
        high=2**24,
    )
    oncelog_max_producer_ring_entries: int = integer(
        1_000_000,
        "Leased producers of all partitions together; one that writes to two counts twice. When there are as many, "
        "those that wrote once give way.",
        low=16,
    )
    oncelog_max_producer_kafka_entries: int = integer(
        1_000_000,
        "Producers with pids of InitProducerId of all partitions together; when there are as many, those that wrote "
        "nothing for ten minutes give way, and a partition that holds 64 or more refuses new ones meanwhile.",
        low=16,
    )

    # Groups
    group_min_session_timeout_ms: int = integer(6000, "Shortest session timeout that a member may ask for.")
    group_max_session_timeout_ms: int = integer(30 * MINUTE_MS, "Longest session timeout that a member may ask for.")
    group_initial_rebalance_delay_ms: int = integer(
        0, "How long a new group waits for more members. Kafka's 3000 would make every test wait."
    )
    group_max_size: int = integer(10_000, "Members of one group; Kafka has no limit by default.", low=1)
    group_consumer_session_timeout_ms: int = integer(
        45_000, "How long a member of a group of KIP-848 may not be heard of.", low=1
    )
    group_consumer_heartbeat_interval_ms: int = integer(5_000, "How often such a member is to be heard of.", low=1)
    group_consumer_min_session_timeout_ms: int = integer(
        45_000,
        "Shortest session timeout that such a group may have of its own; that of all, where it is shorter.",
        low=1,
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60_000, "Longest session timeout that such a group may have of its own; that of all, where it is longer.", low=1
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5_000,
        "Shortest heartbeat interval that such a group may have of its own; that of all, where it is shorter.",
        low=1,
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15_000,
        "Longest heartbeat interval that such a group may have of its own; that of all, where it is longer.",
        low=1,
    )
    group_consumer_max_size: int = integer(
        5_000,
        "Members of one group of KIP-848: what all are to have is stored as one batch. Kafka has no limit by default.",
        low=1,
    )
    group_consumer_assignors: tuple[str, ...] = texts(
        ("uniform", "range"), "How such a group shares partitions; the first where its members ask for none."
    )
    group_consumer_assignment_interval_ms: int = integer(
        0, "How often such a group shares anew, at most. Kafka's 1000 would make every test wait.", low=0
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        0, "Shortest such interval that a group may have of its own; that of all, where it is shorter.", low=0
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        15_000, "Longest such interval that a group may have of its own; that of all, where it is longer.", low=0
    )
    group_consumer_migration_policy: str = text(
        "bidirectional",
        "Whether a group goes over to the other protocol while it has members: to KIP-848's (upgrade) when the first "
        "member that speaks it joins, back (downgrade) when the last one has left.",
        words=("disabled", "upgrade", "downgrade", "bidirectional"),
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = texts(
        ("classic", "consumer"), "The protocols of groups that are served."
    )
    oncelog_max_groups: int = integer(
        100_000,
        "Groups of consumers, with members or only with offsets. One host may make a group as long as it has made "
        "fewer than are left, so that there is room for others.",
        low=1,
        high=2**24,
    )
    offset_metadata_max_bytes: int = integer(4096, "Size of the text that a client stores beside an offset.")
    offsets_retention_minutes: int = integer(10_080, "Offsets of a group without members are kept this long.", low=1)
    offsets_retention_check_interval_ms: int = long(10 * MINUTE_MS, "How often expired offsets are looked for.", low=1)
    offsets_topic_num_partitions: int = integer(
        1, "Partitions of __consumer_offsets. Kafka's 50 spread the work over brokers; here there is one.", low=1
    )
    offsets_topic_segment_bytes: int = integer(
        4 * 2**20,
        "Segment size of __consumer_offsets. Every start reads the topic, and only closed segments are compacted: "
        "with Kafka's 100 MiB a start would read up to a million commits that no longer count.",
        low=14,
    )
    offsets_topic_replication_factor: int = integer(
        3, "Copies of __consumer_offsets, or as many as brokers are up when it is made.", low=1, high=2**15 - 1
    )

    # Transactions
    transaction_max_timeout_ms: int = integer(
        15 * MINUTE_MS, "The longest time that a producer may ask for its transactions.", low=1
    )
    transactional_id_expiration_ms: int = integer(
        7 * DAY_MS, "A transactional id that nobody uses is forgotten after so long.", low=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "How often transactions that took too long are looked for, and aborted.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        60 * MINUTE_MS, "How often transactional ids that nobody uses are looked for.", low=1
    )
    transaction_partition_verification_enable: bool = boolean(
        True, "A batch of a transaction is taken in only where its coordinator knows of the partition."
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20, "A Produce request looks so often whether its producer's last transaction has ended.", low=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100, "How long a Produce request waits for that at most; then its client is told to ask again.", low=0
    )
    transaction_state_log_num_partitions: int = integer(
        1, "Partitions of __transaction_state. Kafka's 50 spread the work over brokers; here there is one.", low=1
    )
    transaction_state_log_segment_bytes: int = integer(
        4 * 2**20, "Segment size of __transaction_state. Every start reads the topic, as that of offsets.", low=14
    )
    transaction_state_log_replication_factor: int = integer(
        3, "Copies of __transaction_state, or as many as brokers are up when it is made.", low=1, high=2**15 - 1
    )
    oncelog_max_transactional_ids: int = integer(
        100_000, "Transactional ids that one broker coordinates at most; one takes about a kilobyte.", low=1
    )
    oncelog_max_transaction_partitions: int = integer(
        10_000, "Partitions that one transaction may write to at most.", low=1
    )

    # Watching it
    oncelog_metrics_listener: str | None = text(
        None, "HOST:PORT that serves Prometheus text at /metrics; off when not set."
    )
    oncelog_metrics_sign_in: str = text(
        "auto",
        "Whether /metrics asks for a user's name and password (HTTP Basic) or, where a listener has OAUTHBEARER, for a "
        "token: `auto` where a listener asks clients who they are, where access rules are asked, and beyond the "
        "loopback address; `always`; `never`, which is for the loopback address alone.",
        words=("auto", "always", "never"),
    )
    oncelog_metrics_tls: str = text(
        "auto",
        "Whether /metrics speaks TLS, by the same certificate: `auto` beyond the loopback address; `always`.",
        words=("auto", "always"),
    )

    # Its page
    oncelog_console_sign_in: str = text(
        "auto",
        "Whether the page asks people to sign in: `auto` where a listener asks clients who they are, where access "
        "rules are asked, and beyond the loopback address; `always`; `never`, which is for the loopback address alone.",
        words=("auto", "always", "never"),
    )
    oncelog_console_tls: str = text(
        "auto",
        "Whether the page speaks TLS, by the same certificate: `auto` beyond the loopback address; `always`.",
        words=("auto", "always"),
    )
    oncelog_page_hosts: tuple[str, ...] = texts(
        (),
        "Names by which browsers and scrapers may ask for the page and for /metrics, beside addresses, localhost and "
        "what listeners name.",
    )

    # The origin of each value: the text given at the start, and the text set while running.
    given: dict[str, str] = field(default_factory=dict, repr=False)
    changed: dict[str, str] = field(default_factory=dict, repr=False)
    by_listener: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)  # what one of them has of its own

    def __post_init__(self) -> None:
        """Settings made in code may use either name too."""
        if self.broker_id is not None:
            self.node_id = self.broker_id
        if self.log_dirs is not None:
            self.log_dir = ",".join(self.log_dirs)

    @property
    def retention_ms(self) -> int:
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return -1 if self.log_retention_minutes < 0 else self.log_retention_minutes * MINUTE_MS
        return -1 if self.log_retention_hours < 0 else self.log_retention_hours * HOUR_MS

    @property
    def roll_ms(self) -> int:
        return self.log_roll_ms if self.log_roll_ms is not None else self.log_roll_hours * HOUR_MS

    def of_listener(self, listener: str) -> "Settings":
        """The settings as they count for one listener: `listener.name.<its name in small letters>.` goes before the
        rest."""
        own = self.by_listener.get(listener)
        return replace(self, **own) if own else self

    def value(self, name: str) -> Any:
        """The value of a setting by Kafka's name."""
        return getattr(self, attribute(name))

    def with_changes(self, changed: Mapping[str, str]) -> "Settings":
        """A copy for which only these are changed at run time; SettingsError where one of them cannot be."""
        other = replace(self, given=dict(self.given), changed=dict(self.changed))
        for name in {*self.changed, *changed}:
            other.change(name, changed.get(name))
        return other

    def change(self, name: str, given: str | None) -> None:
        """Set a dynamic setting while the server runs, or with None go back to what the start was given."""
        setting = SETTINGS[name]
        if not setting.dynamic:
            raise SettingsError(f"{name} cannot be changed while the server runs")
        if given is not None:
            setattr(self, attribute(name), setting.parse(given.strip()))
            self.changed[name] = given
            return
        self.changed.pop(name, None)
        at_start = self.given.get(name)
        setattr(self, attribute(name), setting.default if at_start is None else setting.parse(at_start.strip()))


def attribute(name: str) -> str:
    return name.replace(".", "_")


SETTINGS: dict[str, Setting] = declared(Settings)
