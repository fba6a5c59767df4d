"""What a lane and a driver have of the cluster: `warm.Cluster`, or in tests a twin of it in memory."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncelog.client import SavedProducer
from oncelog.spark.sink.standing import Standing

if TYPE_CHECKING:
    from oncelog.spark.sink.destination import Destination
    from oncelog.spark.sink.lane_producer import LaneProducer
    from oncelog.spark.sink.state_topic import StateTopic

T = TypeVar("T")


class Connected(Protocol):
    destination: "Destination"

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T: ...
    def log(self, sink: str) -> "StateTopic": ...
    def producer(self, saved: SavedProducer) -> "LaneProducer": ...
    def release(self, producer: "LaneProducer") -> None: ...
    def standing(self, sink: str) -> Standing | None: ...
    def remember(self, sink: str, standing: Standing) -> None: ...
    def forget(self, sink: str) -> None: ...


def read_on(connected: Connected, sink: str, *, batch: int | None = None, back: int = 0) -> Standing | None:
    """What stands in the sink's topic now; None where there is no such topic. `batch`: the one that is to be run."""
    topic, known = connected.log(sink), connected.standing(sink)
    if known is None and not connected.run(topic.exists()):
        return None
    # A standing is changed while it is read: if that fails half-way, it is to be read anew.
    connected.forget(sink)
    standing = connected.run(topic.read(known, back=back))
    if known is not None and batch is not None and batch > (standing.next_batch or 0):
        # Somebody has saved more. A leader that has just become one shows less than there is to who reads on; to who
        # begins at the end it does not tell an end that it cannot vouch for.
        standing = connected.run(topic.read(None, back=back))
    connected.remember(sink, standing)
    return standing
