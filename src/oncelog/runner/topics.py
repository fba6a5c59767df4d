"""The topics of a flow: those of users are checked, those of its own are made where they are missing."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.client import KafkaError, KafkaException, NewTopic
from oncelog.client.door import (
    EARLIEST,
    ConfigResource,
    Patience,
    ResourceType,
    Timeouts,
    create_topics,
    describe_configs,
    end_offsets,
    forgotten_after_ms,
    until_heard,
)
from oncelog.clock import DAY_MS, HOUR_MS, MINUTE_MS
from oncelog.flow.errors import FlowRefused
from oncelog.runner.agreeing import KIND as REGISTER
from oncelog.runner.cluster import Cluster
from oncelog.runner.layout import Layout, TopicIds
from oncelog.runner.unread import to_read_all

_log: Final = logging.getLogger("oncelog.flow")

MAKING_MS: Final = 30_000
HEARD: Final = Patience(1.0)
CLUSTER_DEFAULT: Final = -1  # replicas
UNKNOWN_MEMORY_MS: Final = HOUR_MS  # where a broker does not say for how long it remembers a producer
LEAST_TOMBSTONES_MS: Final = DAY_MS  # as Kafka has it; longer than any restore of a cell
LEAST_LAG_MS: Final = DAY_MS  # of compacted outputs: longer than most outages
BEFORE_MAX: Final = "message.timestamp.before.max.ms"  # Kafka 3.6 and newer
MOST_BATCH_BYTES: Final = 16 << 20  # of a commit
COMMIT_RECORD_BYTES: Final = 64 << 10  # what a commit has beside the state's entries
POSITION_BYTES: Final = 120  # and for each output partition
JOURNAL: Final = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(LEAST_TOMBSTONES_MS),
    "max.message.bytes": str(MOST_BATCH_BYTES),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(2 * MOST_BATCH_BYTES),  # an active segment is never compacted
    "segment.ms": str(10 * MINUTE_MS),
}
# A broker forgets a producer by the time of its last record, so the time is the broker's own.
BETWEEN: Final = {"message.timestamp.type": "LogAppendTime"}
TABLE: Final = {"cleanup.policy": "compact"}


@dataclass(frozen=True)
class Found:
    ids: TopicIds
    forget_after_ms: int
    commit_bytes: int


async def ready(
    cluster: Cluster, layout: Layout, kept: Collection[str], used: Collection[str], *, is_part: bool
) -> Found:
    """All topics are as they should be, made where they may be; or FlowRefused. `kept`: journals that are not made
    anew. `used`: topics that must be there, of users'. `is_part`: of a start that found them so, and goes on where one
    has more partitions since."""
    brokers = cluster.brokers
    journals = {stage.journal: stage.cells for stage in layout.stages}
    found = await _counts(cluster, [*layout.partitions, *journals], {*used, *kept} - layout.between)
    names = [name for name, count in found.items() if count or name in used or name in journals]
    counts = {name: found[name] for name in names}
    missing = check_counts(cluster, layout, counts, layout.partitions if is_part else layout.between if kept else ())
    if lost := [name for name in missing if name in kept]:
        raise FlowRefused(
            f"flow {layout.flow}: its journal {', '.join(lost)} is not there any more, and with it what was read, "
            "written and kept as state. Begun anew, the flow writes all of its outputs again: where that is meant, say "
            f"{cluster.command('flow reset', layout.flow)} first"
        )
    forget_after_ms = await memory_ms(cluster)
    wanted = wanted_topics(layout, forget_after_ms)
    for name in missing:
        await _make(cluster, wanted[name])
    places = [(name, index) for name, count in journals.items() for index in range(count)]
    read = [(name, stage.cells) for stage in layout.stages for name in stage.inputs if name in counts]
    inputs = [(name, index) for name, cells in read for index in range(cells)]
    starts = await end_offsets(brokers, [*places, *inputs], EARLIEST)  # which waits until they are led
    cut = next((place for place in places if starts[place]), None)
    if cut is not None:
        raise FlowRefused(
            f"the journal {cut[0]}-{cut[1]} begins at offset {starts[cut]}: somebody removed records of it (retention "
            "where cleanup.policy is not compact, or DeleteRecords). Give the flow another name"
        )
    metadata = await brokers.refresh(names)
    ids = {name: str(metadata.topics[name].topic_id or "") for name in names}
    commit_bytes = await _check_configs(cluster, journals, layout, names, forget_after_ms, len(missing) < len(names))
    positions = max(sum(sink.partitions for sink in stage.part.sinks) for stage in layout.stages)
    room = commit_bytes - COMMIT_RECORD_BYTES - positions * POSITION_BYTES
    if room <= 0:
        raise FlowRefused(
            f"a commit of flow {layout.flow} may have {commit_bytes} bytes, and names {positions} output partitions. "
            "Raise max.message.bytes of its journals"
        )
    return Found(TopicIds(ids, starts, starts), forget_after_ms, room)


async def memory_ms(cluster: Cluster) -> int:
    """The time for which its brokers remember a producer."""
    told = await forgotten_after_ms(cluster.brokers, is_shared=True)
    return UNKNOWN_MEMORY_MS if told is None else told


def wanted_topics(layout: Layout, forget_after_ms: int) -> dict[str, NewTopic]:
    """All that a flow needs, as it makes its own. How those of users are configured is theirs to say, but a table's
    rows stay."""
    own = dict.fromkeys(layout.tables, TABLE) | dict.fromkeys(layout.between, BETWEEN)
    counts = dict(layout.partitions)
    for stage in layout.stages:
        counts[stage.journal] = stage.cells
        own[stage.journal] = {**JOURNAL, BEFORE_MAX: str(forget_after_ms // 2)}
    counts[layout.register], own[layout.register] = 1, REGISTER.topic_config
    return {
        name: NewTopic(name, count, CLUSTER_DEFAULT, config=dict(own.get(name, {}))) for name, count in counts.items()
    }


async def _counts(cluster: Cluster, names: Sequence[str], wanted: Collection[str]) -> dict[str, int]:
    """The partitions of each topic; 0 where it is not there. A broker that does not know a topic yet may lag behind."""
    known = await until_heard(
        lambda: cluster.brokers.refresh(names),
        lambda now: all(name in now.topics and now.topics[name].partitions for name in wanted),
        HEARD,
    )
    return {name: len(known.topics[name].partitions) if name in known.topics else 0 for name in names}


def check_counts(cluster: Cluster, layout: Layout, counts: dict[str, int], may_have_more: Collection[str]) -> list[str]:
    """Check the counts of partitions, by topic. Returns which of the flow's own topics are missing; FlowRefused where
    one is as it cannot be. What a flow passes through may have got more: it is written and read as before, and what
    comes to the others is told."""
    journals = {stage.journal: stage.cells for stage in layout.stages}
    missing: list[str] = []
    for name, count in counts.items():
        if name in may_have_more and count > layout.partitions[name]:
            continue
        if count:
            _check_count(layout, name, counts, journals)
        else:
            missing.append(name)
    if users := [name for name in missing if name in layout.sources | layout.targets]:
        _refuse_missing(cluster, layout, users)
    return missing


def _check_count(layout: Layout, name: str, counts: dict[str, int], journals: dict[str, int]) -> None:
    wanted, count = journals.get(name), counts[name]
    if wanted is not None and wanted != count:
        (topic,) = (stage.inputs[0] for stage in layout.stages if stage.journal == name)
        raise FlowRefused(
            f"flow {layout.flow}: its journal {name} has {count} partitions, for the cells that it began with, and "
            f"{topic} has {wanted} partitions now. State and slots belong to cells. {to_read_all(topic, wanted)}"
        )
    begun = [stage for stage in layout.stages if name in stage.inputs and counts.get(stage.journal)]
    if begun and layout.partitions[name] == counts[begun[0].journal] < count:
        raise FlowRefused(
            f"flow {layout.flow}, stage {begun[0].name}: its input {name} has {count} partitions now, and the stage "
            f"has {layout.partitions[name]} cells, for ever. {to_read_all(name, count)}"
        )
    if wanted is None and layout.partitions[name] != count:
        raise FlowRefused(
            f"topic {name} has {count} partitions, and flow {layout.flow} says {layout.partitions[name]}: write "
            f"Topic({name!r}, ..., partitions={count})"
        )


def _refuse_missing(cluster: Cluster, layout: Layout, names: Sequence[str]) -> None:
    does = [f"{name}, which it {'reads' if name in layout.sources else 'writes'}" for name in names]
    alike: dict[str, list[str]] = {}
    for name in sorted(names, key=layout.partitions.__getitem__):
        settings = "".join(f"-c {key}={value} " for key, value in TABLE.items() if name in layout.tables)
        alike.setdefault(f"-p {layout.partitions[name]} {settings}", []).append(name)
    makes = [cluster.command("topics create", how + " ".join(each)) for how, each in alike.items()]
    raise FlowRefused(
        f"flow {layout.flow} misses topics: {'; '.join(does)}. Make them first, for example with {' and '.join(makes)}"
    )


async def _make(cluster: Cluster, topic: NewTopic) -> None:
    outcome = await _create(cluster, topic)
    if outcome is not None and outcome.error.code() == KafkaError.INVALID_CONFIG and BEFORE_MAX in topic.config:
        _log.warning(
            "%s: this broker does not know %s. A process that sleeps for longer than half of producer.id.expiration.ms "
            "and then goes on is not kept out of the journal",
            topic.topic,
            BEFORE_MAX,
        )
        topic.config = {name: value for name, value in topic.config.items() if name != BEFORE_MAX}
        outcome = await _create(cluster, topic)
    if outcome is not None and outcome.error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
        raise FlowRefused(f"topic {topic.topic} cannot be made: {outcome.error.str()}")


async def _create(cluster: Cluster, topic: NewTopic) -> KafkaException | None:
    timeouts = Timeouts(MAKING_MS, MAKING_MS)
    outcome = (await create_topics(cluster.brokers, [topic], timeouts, validate_only=False))[topic.topic]
    return outcome if isinstance(outcome, KafkaException) else None


async def _check_configs(
    cluster: Cluster,
    journals: dict[str, int],
    layout: Layout,
    there: Collection[str],
    forget_after_ms: int,
    may_be_others: bool,
) -> int:
    """Check that journals keep all records, outputs those that a replay compares with, and tables their
    rows, as far as we may know it. The size that a commit may have."""
    names = {*journals, *layout.between, *layout.targets, *layout.tables}.intersection(there)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(names)]
    found = await describe_configs(cluster.brokers, resources, Timeouts(MAKING_MS))
    sizes = [MOST_BATCH_BYTES]
    for resource, entries in found.items():
        if isinstance(entries, KafkaException):
            if entries.error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise entries
            if resource.name in journals:
                sizes.append(1_000_000)
            continue
        configs = {name: entry.value or "" for name, entry in entries.items()}
        if resource.name not in journals:
            check = _check_table if resource.name in layout.tables else _check_output
            check(resource.name, configs)
            continue
        _check_journal(resource.name, configs)
        sizes.append(int(configs["max.message.bytes"] or 1_000_000))
        most_ms = forget_after_ms // 2
        if may_be_others and int(configs.get(BEFORE_MAX) or 0) > most_ms:
            _log.warning(
                "the journal %s has %s=%s: set it to %s, so that a process that slept is kept out",
                resource.name,
                BEFORE_MAX,
                configs[BEFORE_MAX],
                most_ms,
            )
    return min(sizes)


def _check_journal(name: str, configs: Mapping[str, str]) -> None:
    policy, tombstones_ms = configs["cleanup.policy"], configs.get("delete.retention.ms")
    if policy != "compact":
        raise FlowRefused(
            f"the journal {name} has cleanup.policy={policy}, and would lose the flow's state: set it to compact"
        )
    if tombstones_ms and int(tombstones_ms) < LEAST_TOMBSTONES_MS:
        _log.warning(
            "the journal %s has delete.retention.ms=%s: where a restore takes longer than that, state that was removed "
            "may come back. Set it to %s",
            name,
            tombstones_ms,
            LEAST_TOMBSTONES_MS,
        )


def _check_table(name: str, configs: Mapping[str, str]) -> None:
    policy, tombstones_ms = configs["cleanup.policy"], configs.get("delete.retention.ms")
    if policy != "compact":
        _log.warning(
            "topic %s is read as a table and has cleanup.policy=%s: rows that retention takes are missing where "
            "the flow begins anew. Set it to compact",
            name,
            policy,
        )
    elif tombstones_ms and int(tombstones_ms) < LEAST_TOMBSTONES_MS:
        _log.warning(
            "topic %s is read as a table and has delete.retention.ms=%s: a flow that stands still for longer keeps "
            "rows that were deleted meanwhile. Set it above your longest outage: %s is a day",
            name,
            tombstones_ms,
            LEAST_TOMBSTONES_MS,
        )


def _check_output(name: str, configs: Mapping[str, str]) -> None:
    lag_ms = configs.get("min.compaction.lag.ms")
    if "compact" in configs["cleanup.policy"] and lag_ms and int(lag_ms) < LEAST_LAG_MS:
        _log.warning(
            "topic %s is compacted and has min.compaction.lag.ms=%s. What the flow wrote behind its last commit is "
            "read back after a crash; where compaction took some of it by then, the cell stops. Set it above your "
            "longest outage: %s is a day",
            name,
            lag_ms,
            LEAST_LAG_MS,
        )
