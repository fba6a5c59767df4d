"""One Sender on an empty stage, with a clock that is turned by hand."""

from typing import Any, TypeVar

from oncelog.records.build import build_batch
from oncelog.records.header import check_produced
from oncelog.slots import Identity, Place
from oncelog.slots.batch import Batch
from oncelog.slots.limits import SenderLimits
from oncelog.slots.messages import (
    Action,
    BatchAnswer,
    Delivered,
    Failed,
    Found,
    LookUp,
    NeedIdentity,
    NeedMetadata,
    Produce,
    StoredSpan,
)
from oncelog.slots.sender import Sender

PLACE = Place("t", 0)
STOCK = Identity(1 << 32, 0)
LEASED = Identity(7, 3)

Kind = TypeVar("Kind", bound=Action)


class Stage:
    def __init__(self, *, is_leased: bool = False, expires_at_ms: int = 100_000, **limits: Any) -> None:
        self.now_ms = 1_000
        self.sender = Sender(SenderLimits(**limits), lambda: 0.5)
        self.sender.set_wall_clock(self.now_ms, self.now_ms)
        self.sender.leaders({PLACE: 1}, self.now_ms)
        self.seen: list[Action] = []
        if limits.get("is_idempotent", True):
            identity = LEASED._replace(expires_at_ms=expires_at_ms) if is_leased else STOCK
            self.sender.granted([PLACE], identity, self.now_ms)

    def add(self, *values: str, place: Place = PLACE) -> Batch:
        records = [(None, value.encode(), (), self.now_ms) for value in values]
        batch = Batch(*place, build_batch(records), len(values), self.now_ms, list(values))
        self.sender.add(batch, self.now_ms)
        return batch

    def take(self, kind: type[Kind]) -> list[Kind]:
        """The actions of this kind since they were last taken; all others stay."""
        self.seen += self.sender.actions(self.now_ms)
        taken: list[Kind] = [action for action in self.seen if isinstance(action, kind)]
        self.seen = [action for action in self.seen if not isinstance(action, kind)]
        return taken

    def sent(self) -> list[Produce]:
        sent = self.take(Produce)
        for request in sent:
            for batch in request.batches:
                check_produced(batch.data)
        return sent

    def slots(self) -> list[tuple[int, int, int]]:
        """Pid, generation and first sequence of what was sent, one after the other."""
        return [(batch.pid, batch.generation, batch.first_sequence) for each in self.sent() for batch in each.batches]

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms

    def answer(self, request: Produce, code: int = 0, base_offset: int = 0) -> None:
        answers = [BatchAnswer(batch.topic, batch.partition, code, base_offset) for batch in request.batches]
        self.sender.answered(request.request_id, answers, self.now_ms)

    def lose(self, request: Produce, *, was_sent: bool = True) -> None:
        self.sender.lost(request.request_id, self.now_ms, was_sent=was_sent)

    def prove(self) -> None:
        """A first batch, acknowledged, so that others may follow in company."""
        self.add("first")
        self.answer(self.sent()[0])
        self.take(Delivered)

    def tell(self, last_sequence: int, generation: int | None = None, *spans: StoredSpan) -> None:
        asked = self.take(LookUp)[0]
        own = asked.identity.generation if generation is None else generation
        self.sender.looked_up(asked.place, Found(last_sequence, own, spans), self.now_ms)


__all__ = ["LEASED", "PLACE", "STOCK", "Delivered", "Failed", "LookUp", "NeedIdentity", "NeedMetadata", "Stage"]
