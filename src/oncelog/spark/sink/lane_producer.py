"""The saved producer of a lane, while a task writes with it. Afterwards it may be another lane's."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from oncelog.client import KafkaError, KafkaException, Producer, SavedProducer
from oncelog.client.door import ReplayDiffers
from oncelog.spark.sink.lane import Json
from oncelog.spark.sink.rows import Portion
from oncelog.spark.sink.saved_lanes import together
from oncelog.spark.sink.under_way import UnderWay
from oncelog.waiting import result_of

if TYPE_CHECKING:
    from oncelog.client.door import TransactionName

T = TypeVar("T")


class LaneProducer:
    def __init__(self, properties: Mapping[str, str], keyless_run: int) -> None:
        # Where a lane's records go is its own for as long as it lives, whatever the default is by now.
        self._producer = Producer({"oncelog.keyless.run": str(keyless_run), **properties})
        self.keyless_run = keyless_run
        self.began: SavedProducer  # what it goes on as, with what was added by `extend`
        self._under_way = UnderWay()

    def start(self, saved: SavedProducer, *, is_fresh: bool, transaction: "TransactionName | None" = None) -> None:
        """Go on as this lane, and no other any more. It is asked what was written since, unless that is nothing."""
        resuming = self._producer.saving.resume(saved, is_fresh=is_fresh, is_anew=True, transaction=transaction)
        self._run(resuming)
        self.began = saved
        self._under_way = UnderWay()

    def extend(self, saved: SavedProducer, *, is_fresh: bool) -> None:
        """Write to these topics, too, as the same lane."""
        self._run(self._producer.saving.resume(saved, is_fresh=is_fresh))
        self.began = together([self.began, saved])

    def replayed(self) -> int:
        """Records that stand in the log already, of those that are to come."""
        return sum(self._producer.saving.missing().values())

    def send(self, portion: Portion) -> None:
        """Waits while too much is under way."""
        self._under_way.add(self._producer.send(portion.topic, portion.rows), portion)

    def refused(self) -> KafkaError | None:
        """The error of a row that cannot be written, with its number in the lane where that is known."""
        return self._under_way.refused()

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
        """Close at once: what is not acknowledged by now is another attempt's."""
        try:
            self._producer.purge()
        except KafkaException:
            pass  # it has failed before
        self._producer.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return result_of(asyncio.run_coroutine_threadsafe(coroutine, self._producer.saving.loop))
