"""The outputs of a cell: how many slots of each are filled, what is sent, and what stands there is compared with it."""

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.clock import Now
from oncelog.flow.cell_context import CellContext
from oncelog.flow.description import OutputPlace
from oncelog.flow.formats import OutputPosition
from oncelog.flow.messages import Outputs, ReadBack, Recall, size_of
from oncelog.producers.sequences import sequence_after
from oncelog.slots import Identity, Place
from oncelog.slots.batch import Batch
from oncelog.slots.limits import remembered_ms
from oncelog.slots.replay import PartitionReplay, Slot

LONG_AGO_MS: Final = -(1 << 62)
MOST_READ_BACK: Final = 10_000  # records at a time, where they are of several batches
RECORD_OVERHEAD_BYTES: Final = 80  # of an output, beside key and value: varints and the two headers


class CellOutputs:
    def __init__(self, context: CellContext) -> None:
        self._context = context
        self.places = {output.place: output.topic_id for output in context.stage.outputs}
        self.filled: dict[Place, int] = {}
        self.offsets: dict[Place, int] = {}  # nothing of later slots lies below
        self.forsaken: set[Place] = set()  # that are gone
        self.recalled_at: Now | None = None  # brokers were asked what they remember of the outputs' producer
        self.known_at_ms: dict[Place, int] = {}  # monotonic: they remembered it there
        self.comparing: list[tuple[Batch, int]] = []  # found in the log, from where on
        self.being_read: list[Batch] = []  # of these, and read back now: batches of one place that follow each other

    # --- what brokers remember

    def recall(self, pid: int) -> None:
        if self.recalled_at is None:
            self.recalled_at = self._context.now
            self._context.ask(Recall(pid, list(self.places)))

    def recalled(self, last_ms: Mapping[Place, int]) -> None:
        """Take in the time of the last record in those places where anything is remembered. Brokers go by that when
        they forget."""
        asked, limits = self.recalled_at, self._context.limits
        if asked is not None:
            since_ms = asked.wall_ms - remembered_ms(limits.forget_after_ms, limits.settle_ms)
            self.known_at_ms = {place: asked.monotonic_ms for place, ms in last_ms.items() if ms > since_ms}

    def distrust(self) -> None:
        """Look before sending: an earlier holder may have filled more than it committed."""
        self.known_at_ms.clear()

    # --- what is sent

    def restore(self, pid: int, positions: Iterable[OutputPosition]) -> None:
        committed = {(each.topic, each.partition): each for each in positions}
        for place in self.places:
            position = committed.get(place)
            self.filled[place] = position.filled if position else 0
            self.offsets[place] = position.next_offset if position else -1
            self.resume(place, Identity(pid, 0))

    def resume(self, place: Place, identity: Identity) -> None:
        """The producer id of the outputs keeps its epoch for ever. How many more slots are filled is asked first, but
        where who was here before has left none and the broker knows of all that it filled."""
        self._context.sender.resume(
            place,
            identity,
            sequence_after(self.filled[place], 0),
            self._context.now.monotonic_ms,
            next_offset=self.offsets[place],
            is_shared=True,
            known_at_ms=self.known_at_ms.get(place, LONG_AGO_MS),
        )

    def send(self, place: Place, outputs: Outputs) -> None:
        context, count = self._context, len(outputs.keys)
        cells = size_of(outputs.keys) + size_of(outputs.values)
        if count > 1 and cells + count * RECORD_OVERHEAD_BYTES > context.limits.batch_bytes:
            self.send(place, outputs.part(0, count // 2))
            self.send(place, outputs.part(count // 2))
            return
        now_ms = context.now.monotonic_ms
        batch = context.batch_of(place, outputs, now_ms)
        context.sender.add(batch, now_ms)
        self.filled[place] += count
        context.waits(len(batch.data))

    def delivered(self, batch: Batch, base_offset: int, *, was_in_doubt: bool) -> None:
        if not was_in_doubt:
            self._context.waited(len(batch.data))
            return
        self.comparing.append((batch, base_offset))
        if not self.being_read:
            self._compare_next()

    def forsake(self, topic: str) -> None:
        gone = [place for place in self.places if place.topic == topic]
        self.forsaken.update(gone)
        self._context.sender.leaders(dict.fromkeys(gone), self._context.now.monotonic_ms)

    def position(self, output: OutputPlace) -> OutputPosition:
        place = output.place
        boundary = self._context.sender.boundary(place)
        if boundary is not None:
            self.offsets[place] = max(self.offsets[place], boundary.next_offset)
        return OutputPosition(*place, output.topic_id, self.filled[place], self.offsets[place])

    @property
    def is_drained(self) -> bool:
        """Everything that was sent stands in the log as it was made."""
        boundary = self._context.sender.boundary
        is_idle = all(boundary(place) is not None for place in self.filled.keys() - self.forsaken)
        return is_idle and not self.comparing and not self.being_read

    # --- what stands there

    def read_back(self, place: Place, slots: Iterable[Slot]) -> None:
        """Raises CannotTell and Differs."""
        batches, self.being_read = self.being_read, []
        self._context.waited(sum(len(batch.data) for batch in batches))
        replay = PartitionReplay(*place, sum(batch.record_count for batch in batches))
        for batch in batches:
            assert batch.place == place and isinstance(batch.payload, Outputs)
            for output in batch.payload.each():
                replay.offer(output)
        replay.stands(slots)
        replay.ended()
        stand = [each.slot for each in replay.dropped()]
        # A broker may say that they stand and not where, and a commit says up to where its outputs do.
        self.offsets[place] = max(self.offsets[place], stand[-1].offset + 1)
        self._compare_next()

    def _compare_next(self) -> None:
        """All that follow each other are one question: what another holder sent may be a thousand small batches."""
        if not self.comparing:
            return
        first, offset = self.comparing[0]
        self.being_read, left, records = [first], [], first.record_count
        for batch, found_at in self.comparing[1:]:
            follows = batch.place == first.place and batch.identity == first.identity
            follows = follows and batch.first_sequence == sequence_after(first.first_sequence, records)
            if follows and records + batch.record_count <= MOST_READ_BACK:
                self.being_read.append(batch)
                records += batch.record_count
            else:
                left.append((batch, found_at))
        self.comparing = left
        from_offset = offset if offset >= 0 else self.offsets[first.place]
        self._context.ask(ReadBack(first.place, first.identity, first.first_sequence, records, from_offset))
