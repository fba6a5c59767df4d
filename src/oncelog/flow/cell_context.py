"""State that the parts of a cell share: its description, the time, the sender, and the requests that it makes."""

from collections.abc import Callable

from oncelog.clock import Now
from oncelog.flow.description import Holder, Limits, Stage
from oncelog.flow.messages import Action, Outputs, Work
from oncelog.records.build import build_batch
from oncelog.slots import Place
from oncelog.slots.batch import Batch
from oncelog.slots.comparing import plain_headers
from oncelog.slots.sender import Sender

Encode = Callable[[Outputs, int], bytearray]  # one batch, whose records carry this time


def encoded_rows(outputs: Outputs, timestamp_ms: int) -> bytearray:
    return build_batch([(each.key, each.value, plain_headers(each.headers), timestamp_ms) for each in outputs.each()])


class CellContext:
    __slots__ = ("asked", "encode", "holder", "limits", "now", "sender", "stage", "waiting_bytes", "work")

    def __init__(
        self,
        stage: Stage,
        work: Work,
        holder: Holder,
        limits: Limits,
        now: Now,
        *,
        random: Callable[[], float],
        encode: Encode,
    ) -> None:
        self.stage, self.work, self.holder, self.limits = stage, work, holder, limits
        self.now = now
        self.encode = encode
        self.sender = Sender(limits.sender, random, self._split)
        self.sender.set_wall_clock(now.wall_ms, now.monotonic_ms)
        self.asked: list[Action] = []
        self.waiting_bytes = 0  # of outputs that are not acknowledged, or not compared; of rows that are not written

    def ask(self, action: Action) -> None:
        self.asked.append(action)

    def take_asked(self) -> list[Action]:
        asked, self.asked = self.asked, []
        return asked

    def waits(self, size_bytes: int) -> None:
        self.waiting_bytes += size_bytes

    def waited(self, size_bytes: int) -> None:
        self.waiting_bytes -= size_bytes

    def monotonic(self, wall_ms: int) -> int:
        """The same time by the other clock, as both go now."""
        return self.now.monotonic_ms + wall_ms - self.now.wall_ms

    def batch_of(self, place: Place, outputs: Outputs, created_ms: int) -> Batch:
        """A batch of these outputs, with the present time: a broker forgets a producer by its records' timestamps."""
        data = self.encode(outputs, self.now.wall_ms)
        return Batch(*place, data, len(outputs.keys), created_ms, outputs)

    def _split(self, batch: Batch, records: int) -> tuple[Batch, Batch]:
        outputs = batch.payload
        assert isinstance(outputs, Outputs)
        first = self.batch_of(batch.place, outputs.part(0, records), batch.created_ms)
        second = self.batch_of(batch.place, outputs.part(records), batch.created_ms)
        self.waits(len(first.data) + len(second.data) - len(batch.data))
        return first, second
