"""The brokers' memory of a producer: how far it got, and for how long they remember it.

Stock Kafka forgets a producer by its records' timestamps; an idempotent batch that is sent again later is stored again.
The broker says for how long (`producer.id.expiration.ms`) to who may describe its configuration. Before Kafka 3.4 the
time was that of transactional ids. A client that may not know it assumes little: that costs only records with old
timestamps, which then travel one batch at a time, and a look into the log at a resume.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.leaders import answers_of_leaders, by_topic, refusal
from oncelog.client.net.retry import Outcomes, Patience, ask
from oncelog.clock import HOUR_MS
from oncelog.slots import HighWater, Place
from oncelog.slots.limits import remembered_ms
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

UNKNOWN_MS: Final = HOUR_MS
BROKER: Final = 4  # the kind of resource
MOST_LETTERS: Final = 20  # of a number of 64 bits
NAMES: Final = ("producer.id.expiration.ms", "transactional.id.expiration.ms")


async def remembered_or_none(brokers: "Brokers", pids: Mapping[Place, int]) -> dict[Place, HighWater | None]:
    """The leaders' memory of each place's pid (KIP-664); None where they have none, and from brokers that cannot
    tell (before Kafka 2.8), so that the log is asked."""

    async def ask_node(node_id: int, places: list[Place]) -> Outcomes[Place]:
        def build(schema: Any) -> Any:
            topics = tuple(
                schema.new("TopicRequest", name=name, partition_indexes=tuple(indexes))
                for name, indexes in by_topic(places).items()
            )
            return schema.new("DescribeProducersRequest", topics=topics)

        answer = await brokers.request(node_id, "describe_producers", build, versions=(0, 0))
        found: Outcomes[Place] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                place = Place(topic.name, each.partition_index)
                refused = refusal(each.error_code, place, each.error_message)
                found[place] = refused or _of_pid(each.active_producers, pids[place])
        return found

    try:
        return await answers_of_leaders(brokers, pids, ask_node, Patience())
    except KafkaException as failure:
        if failure.error.code() == KafkaError._UNSUPPORTED_FEATURE:
            return dict.fromkeys(pids)
        raise


def _of_pid(producers: Iterable[Any], pid: int) -> HighWater | None:
    for each in producers:
        if each.producer_id == pid:
            return HighWater(each.producer_epoch, each.last_sequence, each.last_timestamp)
    return None


async def surely_remembered_ms(brokers: "Brokers") -> int:
    """The time for which the brokers surely remember a producer."""
    try:
        found = await ask(lambda: forgotten_after_ms(brokers, is_shared=True), Patience())
    except KafkaException:
        found = None  # whatever else is asked of them will say why
    return remembered_ms(UNKNOWN_MS if found is None else found)


async def forgotten_after_ms(brokers: "Brokers", *, is_shared: bool = False) -> int | None:
    """None where the broker does not say. Oncelog goes by leases, and is only asked where slots are shared: there are
    none then."""
    connection = await brokers.connection(None)
    if connection.is_oncelog and not is_shared:
        return None
    node_id = connection.node_id
    if node_id is None:
        node_id = min((await brokers.refresh(())).brokers, default=None)
    if node_id is None:
        return None  # a cluster that names no brokers
    answer = await brokers.request(node_id, "describe_configs", lambda spoken: _request(spoken, node_id))
    values = {entry.name: entry.value for result in answer.results if not result.error_code for entry in result.configs}
    return next((int(values[name]) for name in NAMES if _is_number(values.get(name) or "")), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < MOST_LETTERS


def _request(spoken: RequestSchema, node_id: int) -> Any:
    """A broker is asked about itself."""
    resource = spoken.new(
        "DescribeConfigsResource", resource_type=BROKER, resource_name=str(node_id), configuration_keys=NAMES
    )
    return spoken.new(
        "DescribeConfigsRequest", resources=(resource,), include_synonyms=False, include_documentation=False
    )
