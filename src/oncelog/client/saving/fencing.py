"""resume_pid, asked of all leaders at once: older generations are fenced and H(P) is learned in one step.

A generation has one owner (decision 23), so an equal one is refused, and the answer names the one that the partition
knows: the next is taken. The same goes for a fence whose answer was lost or came too late; it may stand in the log,
under a generation that only we have seen.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.leaders import answers_of_leaders, by_topic, refusal
from oncelog.client.net.retry import ASK_AT_ONCE, Outcomes, Patience
from oncelog.error_codes import ErrorCodes as Code
from oncelog.producers.sequences import GENERATIONS, is_newer_generation
from oncelog.slots import HighWater, Identity, Place

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

TIMEOUT_MS: Final = 5_000
# Of InitProducerId; whatever else a broker says, it may say otherwise the next time.
REFUSED_FOR_GOOD: Final = frozenset({KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.UNSUPPORTED_VERSION})


async def fence(brokers: "Brokers", identities: Mapping[Place, Identity]) -> dict[Place, HighWater | None]:
    """The generation of each place that is ours now, and H(P); None where the lease is not known there (any more)."""
    generations = {place: generation_after(identity.generation) for place, identity in identities.items()}

    async def ask(node_id: int, places: Sequence[Place]) -> Outcomes[Place]:
        producers: dict[tuple[int, int], list[Place]] = defaultdict(list)
        for place in places:
            producers[identities[place].pid, generations[place]].append(place)
        try:
            answer = await brokers.request(
                node_id, "resume_pid", lambda schema: _request(schema, producers), versions=(0, 0)
            )
        except KafkaException:
            for place in places:
                generations[place] = generation_after(generations[place])
            raise
        found: Outcomes[Place] = {}
        for producer in answer.producers:
            for topic in producer.topics:
                for each in topic.partitions:
                    place = Place(topic.name, each.partition_index)
                    code = int(each.error_code)
                    if code == 0:
                        found[place] = HighWater(each.generation, each.last_sequence)
                    elif code == Code.UNKNOWN_PRODUCER_ID:
                        found[place] = None
                    elif code == Code.INVALID_PRODUCER_EPOCH:
                        generations[place] = _newer(generations[place], each.generation)
                        found[place] = ASK_AT_ONCE
                    else:
                        generations[place] = generation_after(generations[place])
                        is_at_once = code == Code.REQUEST_TIMED_OUT  # the leader has waited already
                        found[place] = ASK_AT_ONCE if is_at_once else refusal(code, place, each.error_message)
        return found

    return await answers_of_leaders(brokers, identities, ask, Patience())


def _request(schema: Any, producers: Mapping[tuple[int, int], Sequence[Place]]) -> Any:
    return schema.new(
        "ResumePidRequest",
        timeout=timedelta(milliseconds=TIMEOUT_MS),
        producers=tuple(
            schema.new(
                "ResumePidProducer",
                producer_id=pid,
                generation=generation,
                topics=tuple(
                    schema.new("ResumePidTopic", name=name, partitions=tuple(indexes))
                    for name, indexes in by_topic(places).items()
                ),
            )
            for (pid, generation), places in producers.items()
        ),
    )


def generation_after(generation: int) -> int:
    return (generation + 1) % GENERATIONS


def _newer(given: int, known: int) -> int:
    """The one after what the partition knows; or after ours, should that be ahead already."""
    return generation_after(given if is_newer_generation(known, given) else known)


async def lease(brokers: "Brokers", places: Sequence[Place], wall_ms: int) -> Identity:
    """One new lease for all these partitions (decision 11)."""

    async def ask(node_id: int, places: Sequence[Place]) -> Outcomes[Place]:
        answer = await brokers.request(node_id, "lease_pid", lambda schema: _lease_request(schema, places))
        found: Outcomes[Place] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                place = Place(topic.name, each.partition_index)
                if each.error_code == 0:
                    found[place] = Identity(each.producer_id, each.generation, wall_ms + each.expire_ms)
                else:
                    found[place] = refusal(each.error_code, place, each.error_message)
        return found

    # The pid is good for every partition on every leader; so one answer is enough.
    found: dict[Place, Identity] = await answers_of_leaders(brokers, places[:1], ask, Patience())
    return found[places[0]]


def _lease_request(schema: Any, places: Sequence[Place]) -> Any:
    return schema.new(
        "LeasePidRequest",
        topics=tuple(
            schema.new("LeasePidTopic", name=name, partitions=tuple(indexes))
            for name, indexes in by_topic(places).items()
        ),
    )


async def new_identity(brokers: "Brokers", places: Sequence[Place], wall_ms: int) -> Identity:
    """A lease, or where none are granted a pid by InitProducerId."""
    if (await brokers.connection(None)).is_oncelog:
        return await lease(brokers, places, wall_ms)
    return await kafka_pid(brokers)


async def kafka_pid(brokers: "Brokers") -> Identity:
    """A pid by InitProducerId; good for ever, on every partition."""

    def build(schema: Any) -> Any:
        return schema.new(
            "InitProducerIdRequest",
            transactional_id=None,
            transaction_timeout=timedelta(milliseconds=60_000),
            producer_id=-1,
            producer_epoch=-1,
        )

    answer = await brokers.request(None, "init_producer_id", build)
    code = int(answer.error_code)
    if code:
        words = f"no producer id was granted: {KafkaError(code).str()}"
        raise KafkaException(KafkaError(code, words, retriable=code not in REFUSED_FOR_GOOD))
    if answer.producer_id < 0:
        raise KafkaException(KafkaError(KafkaError._FAIL, "the broker granted producer id -1", retriable=True))
    return Identity(answer.producer_id, answer.producer_epoch)
