"""How far brokers remember that a producer got."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from oncelog.client.net.leaders import answers_of_leaders, by_topic, refusal
from oncelog.client.net.retry import Outcomes, Patience
from oncelog.slots import HighWater, Place

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers


async def remembered(brokers: "Brokers", pids: Mapping[Place, int]) -> dict[Place, HighWater | None]:
    """What the leaders remember of each place's pid (KIP-664); None where that is nothing."""

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

    return await answers_of_leaders(brokers, pids, ask_node, Patience())


def _of_pid(producers: Iterable[Any], pid: int) -> HighWater | None:
    for each in producers:
        if each.producer_id == pid:
            return HighWater(each.producer_epoch, each.last_sequence)
    return None
