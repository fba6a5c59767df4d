"""The topics that a saved producer writes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.client.saving.errors import TopicGone
from oncelog.slots.chain import SavedPartition

NO_TOPIC_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTopic:
    topic_id: str
    partition_count: int  # pinned: a replay places records as the first run did, whatever was added since
    keyless_counter: int
    partitions: Mapping[int, SavedPartition] = field(default_factory=dict)


def check_topic_id(name: str, before: str, now: str) -> None:
    """Ids of brokers that know none are not compared."""
    if before != now and not {before, now} & {"", NO_TOPIC_ID}:
        raise TopicGone(
            f"topic {name!r} was deleted and made again (its id was {before}, and is {now} now): what was written "
            "before is gone",
            "Start without a saved producer, from the input position that you want",
        )
