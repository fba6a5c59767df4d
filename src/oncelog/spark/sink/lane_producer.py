"""The saved producer of one lane, while a task writes with it."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from oncelog.client.errors import KafkaException
from oncelog.client.producer.producer import Producer
from oncelog.client.saving.errors import ReplayDiffers
from oncelog.client.saving.saved import SavedProducer
from oncelog.spark.sink.lane import Json

T = TypeVar("T")


class LaneProducer:
    """Goes on as `saved`, and as what was claimed since; it is known then how far an earlier attempt got."""

    def __init__(self, properties: Mapping[str, str], saved: Json, more_topics: Iterable[Json] = ()) -> None:
        value = SavedProducer.from_json(saved)
        # Where the lane's records go is its own for as long as it lives, whatever the default is by now.
        placing = {"oncelog.keyless.run": str(value.keyless_run)}
        self._producer = Producer({**placing, **properties}, saved=value)
        self.topics = set(value.topics)
        try:
            for claimed in more_topics:
                self.extend(claimed)
        except BaseException:
            self.close()
            raise

    @property
    def replayed(self) -> int:
        """Records that stand in the log already, of those that are to come."""
        return sum(self._producer.saving.missing().values())

    def extend(self, claimed: Json) -> None:
        """Write to further topics, too, under the identity that the lane has."""
        value = SavedProducer.from_json(claimed)
        self._run(self._producer.saving.extend(value))
        self.topics.update(value.topics)

    def send(self, topic: str, rows: pa.RecordBatch) -> None:
        """Waits while too much is under way."""
        self._producer.send(topic, rows)

    def finish(self) -> Json:
        """The value behind all rows, once every one is in the log."""
        self._producer.flush()
        saved = self._producer.saved()
        missing = self._producer.saving.missing()
        if missing:
            named = ", ".join(f"{count} of {place.topic}-{place.partition}" for place, count in sorted(missing.items()))
            raise ReplayDiffers(
                f"the replay ended before the records that stand in the log already: {named} did not come again"
            )
        return saved.to_value()

    def close(self) -> None:
        """At once: what is not acknowledged by now is another attempt's."""
        try:
            self._producer.purge()
        except KafkaException:
            pass  # it has failed before
        self._producer.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._producer.saving.loop).result()
