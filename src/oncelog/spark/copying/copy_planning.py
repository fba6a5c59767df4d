"""The driver's questions before anything is copied: both topics, the claims of the lanes, and how far they got."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from oncelog.clock import wall_s
from oncelog.spark.copying.cluster import CONSUMER, PRODUCER, Cluster, of_role
from oncelog.spark.copying.job import CopyRefused, Job, Order
from oncelog.spark.copying.lane import Claim, CopyRegister, Side, Start
from oncelog.spark.copying.log import CopyLog, check_name, usual_name
from oncelog.spark.copying.topics import Topic, Topics
from oncelog.spark.retention import kept_ms, soon_gone

MOST_OUTLIVED: Final = 1000  # records of a copy's topic that say less than what stands; tasks are given all
DEFAULT_BATCH_BYTES: Final = 1_048_588  # Kafka's own max.message.bytes


@dataclass(frozen=True, slots=True)
class Spec:
    """The wishes of the user."""

    source: Cluster
    destination: Cluster
    source_topic: str
    destination_topic: str
    name: str
    skips_lost: bool = False


def spec_of(
    source: str,
    destination: str,
    reading: Mapping[str, str],
    writing: Mapping[str, str],
    *,
    name: str | None = None,
    skips_lost: bool = False,
) -> Spec:
    """The plan with properties for each side, of which every client takes what is of its kind."""
    return Spec(
        source=Cluster(of_role(reading, CONSUMER) | {"isolation.level": "read_committed"}, {}),
        destination=Cluster(
            of_role(writing, CONSUMER) | {"isolation.level": "read_uncommitted"}, of_role(writing, PRODUCER)
        ),
        source_topic=source,
        destination_topic=destination,
        name=name or usual_name(source, destination),
        skips_lost=skips_lost,
    )


class Plan:
    """Belongs to one thread."""

    def __init__(self, spec: Spec) -> None:
        check_name(spec.name)
        self._spec = spec
        self._source = Topics(spec.source.reading)
        self._destination = Topics(spec.destination.reading)
        self._log = CopyLog(spec.destination, spec.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._log, self._source, self._destination):
            each.__exit__()

    def job(self) -> Job:
        """Both topics as they are; the destination is made where it is not there."""
        spec = self._spec
        source = self._source.find(spec.source_topic, is_expected=True)
        if source is None:
            raise CopyRefused(f"there is no topic {spec.source_topic} on {self._source.servers}")
        configs = self._source.configs(spec.source_topic)
        destination = self._destination.find(spec.destination_topic)
        if destination is None:
            self._destination.create(spec.destination_topic, source.partition_count, configs.kept())
            destination = self._destination.find(spec.destination_topic, is_expected=True)
        if destination is None:
            raise CopyRefused(f"topic {spec.destination_topic} was made, and is not there")
        _check(source, destination)
        kept = self._destination.configs(spec.destination_topic)
        return Job(
            name=spec.name,
            source=spec.source,
            destination=spec.destination,
            source_side=source.side,
            destination_side=destination.side,
            source_partitions=source.partition_count,
            destination_partitions=destination.partition_count,
            most_batch_bytes=int(kept.value("max.message.bytes") or DEFAULT_BATCH_BYTES),
            is_compacted=configs.is_compacted,
            is_destination_compacted=kept.is_compacted,
            skips_lost=spec.skips_lost,
        )

    def warnings(self, job: Job) -> list[str]:
        """Warnings: nothing is wrong with the copy itself, but some of its records will change or be removed."""
        name = job.destination_topic
        kept = self._destination.configs(name)
        found = []
        if kept.value("message.timestamp.type") == "LogAppendTime":
            found.append(f"{name} gives records the time of their arrival, so the source's timestamps are not kept")
        keeps_ms = kept_ms(kept.value)
        if keeps_ms is not None:
            at_ms = int(wall_s() * 1000) - keeps_ms
            partitions = range(job.source_partitions)
            starts = self._source.starts(job.source_topic, partitions)
            ends = self._source.ends(job.source_topic, partitions)
            since = self._source.at_time(job.source_topic, partitions, at_ms)
            if any((since[each] if since[each] >= 0 else ends[each]) > starts[each] for each in partitions):
                found.append(soon_gone(name, keeps_ms, job.source_topic, "copied"))
        return found

    def has_grown(self, job: Job) -> bool:
        """Whether the source has other partitions than the job knows of."""
        return self._source.partition_count(job.source_topic) != job.source_partitions

    # --- lanes

    def register(self, job: Job) -> CopyRegister:
        """The register with the progress of every lane; lanes without a claim are claimed now."""
        if self._destination.find(self._log.topic) is None:
            self._log.create()
        register = self._log.read()
        _check_claims(job, register)
        missing = [index for index in range(job.source_partitions) if register.claim_of(index) is None]
        if missing:
            self._log.check_config()
            claim = self._claim(job, missing)
            self._log.append(register, [(claim.key, claim.to_json())])
            _check_claims(job, register)
        self._remove(register, register.outlived())
        register.taken()
        return register

    def read_again(self, register: CopyRegister) -> None:
        """Each round leaves a record for each lane, and a copy that follows goes on for ever."""
        self._log.read_on(register)
        outlived = register.outlived()
        if len(outlived) > MOST_OUTLIVED:
            self._remove(register, outlived)
        register.taken()  # tasks are told how lanes stand, and not of all that was written of them

    def _remove(self, register: CopyRegister, outlived: list[bytes]) -> None:
        if outlived:
            self._log.append(register, [(key, None) for key in outlived])

    def _claim(self, job: Job, partitions: list[int]) -> Claim:
        starts = self._source.starts(job.source_topic, partitions)
        ends = self._destination.ends(job.destination_topic, partitions)
        identity = self._destination.granted()
        return Claim(
            job.source_side,
            job.destination_side,
            identity.pid,
            identity.generation,
            {index: Start(starts[index], ends[index]) for index in partitions},
        )

    # --- what there is to copy

    def orders(self, job: Job, register: CopyRegister) -> list[Order]:
        """Partitions that hold more than was copied, up to where no transaction is open, as that is now."""
        ends = self._source.stable_ends(job.source_topic, range(job.source_partitions))
        found = []
        for index, end in sorted(ends.items()):
            lane = register.lanes[index]
            if end < lane.offset:
                raise CopyRefused(
                    f"{job.source_topic}-{index} ends at offset {end}, and was copied up to {lane.offset}: what was "
                    "copied is gone from the source (an unclean leader election, or a restored disk)"
                )
            if end > lane.offset or not lane.is_at_rest:
                found.append(Order(index, end))
        return found

    def destination_ends(self, job: Job) -> dict[int, int]:
        return self._destination.ends(job.destination_topic, range(job.source_partitions))


def _check(source: Topic, destination: Topic) -> None:
    if source.side == destination.side:
        raise CopyRefused(f"{source.side.topic} is SOURCE and DEST: a topic is not copied onto itself")
    if destination.partition_count < source.partition_count:
        name = destination.side.topic
        raise CopyRefused(
            f"{name} has {destination.partition_count} partitions, and {source.side.topic} has "
            f"{source.partition_count}: a copy goes partition by partition. "
            f"`oncelog topics alter {name} --partitions {source.partition_count}` adds those that are missing"
        )


def _check_claims(job: Job, register: CopyRegister) -> None:
    for claim in register.claims:
        _check_side(job, "SOURCE", claim.source, job.source_side)
        _check_side(job, "DEST", claim.destination, job.destination_side)


def _check_side(job: Job, what: str, then: Side, now: Side) -> None:
    if then != now:
        raise CopyRefused(
            f"the copy {job.name} has another {what}: it was {_described(then)}, and is {_described(now)}. "
            "Another --name begins another copy; what this one has written stays where it is"
        )


def _described(side: Side) -> str:
    return f"topic {side.topic} ({side.topic_id}) of cluster {side.cluster_id}"
