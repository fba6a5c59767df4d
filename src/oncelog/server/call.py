"""The surroundings of a request, for its handler."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from oncelog.clock import Now, monotonic_ns
from oncelog.log.slices import Slice
from oncelog.log.work_steps import Pauses
from oncelog.server.access import ANONYMOUS, EVERY_RIGHT, Rights
from oncelog.server.broker import Broker
from oncelog.wire.messages import Schema, schema

ANSWER_BYTES = 100 * 2**20  # as the largest request; no client takes a larger answer
HELD_STEP_BYTES = 64 * 1024
STRUCT_BYTES = 32  # of an answer, without its texts: an estimate
DROPPED_AT_A_TIME = 500  # of its parts: a tenth of a millisecond


Thing = TypeVar("Thing")


class Spending(Protocol):
    """The cost of one request, where somebody asks."""

    def spend(self, spent_ns: int) -> None: ...

    def timed(self, work: Coroutine[Any, Any, Thing]) -> Coroutine[Any, Any, Thing]: ...

    def most_fetched_bytes(self) -> int: ...

    def answered(self, answer: Any, call: "Call") -> Any:
        """The answer to send instead; the connection may stand still from now on."""


class AnswerTooLarge(Exception):
    """Not a KafkaError, which some handlers answer for one part of a request."""


class Encoded(NamedTuple):
    """An answer that is packed already: the whole frame, its length included, as buffers to be sent in this order.

    One with slices of segments must be sent, or its slices read, in the turn of the loop in which it was made.
    """

    buffers: Sequence[bytes | bytearray | memoryview | Slice]
    has_slices: bool = False
    held_bytes: int = 0  # of the memory for answers, by one that was read before it could be sent
    session_id: int = 0  # of the fetch session that counts on its client being told this


@dataclass(slots=True)
class Call:
    broker: Broker
    api: str
    version: int
    client_id: str | None
    client_host: str
    listener: str  # the name of the listener it came in by: what Metadata must advertise
    now: Now
    correlation_id: int = 0
    local_host: str = ""  # the address by which the client reached us
    principal: str = ANONYMOUS
    rights: Rights = EVERY_RIGHT
    spending: Spending | None = None
    answer_bytes: int = 0  # about how large the answer is that is being made
    held_bytes: int = 0  # of it, by what all make together
    made: list[list[Any]] = field(default_factory=list)  # its parts, those around others before them
    is_dropped: bool = False  # nobody waits for it any more

    @property
    def schema(self) -> Schema:
        return schema(self.api, self.version)

    def new(self, type_name: str, **values: Any) -> Any:
        self.answer_bytes += STRUCT_BYTES + sum([len(each) for each in values.values() if type(each) in (str, bytes)])
        if self.answer_bytes > ANSWER_BYTES:
            raise AnswerTooLarge(f"more than {ANSWER_BYTES} bytes")
        return self.schema.new(type_name, **values)

    def timed(self, work: Callable[[], Thing]) -> Thing:
        """Do it on this request's account."""
        spending = self.spending
        if spending is None:
            return work()
        began_ns = monotonic_ns()
        try:
            return work()
        finally:
            spending.spend(monotonic_ns() - began_ns)

    async def later(self, answer: Awaitable[Thing]) -> Thing:
        """Answers that come for all members of a group at the same moment are packed one after the other, in turns."""
        found = await answer
        turns = self.broker.turns
        if turns.is_over():
            await turns.next()
        return found

    async def each(self, things: Iterable[Thing], make: Callable[[Thing], Any]) -> tuple[Any, ...]:
        """The results of `make`, in turns; where `make` has turns itself, it is a coroutine function.

        `things` must not be what others change meanwhile.
        """
        turns = self.broker.turns
        made: list[Any] = []
        self.made.append(made)
        for thing in things:
            if turns.is_over():
                await turns.next()
            if self.answer_bytes - self.held_bytes >= HELD_STEP_BYTES:
                await self._hold()
            one = make(thing)
            made.append(await one if iscoroutine(one) else one)
        return tuple(made)

    async def _hold(self) -> None:
        """Wait until there is room for what has been made since."""
        more_bytes = self.answer_bytes - self.held_bytes
        await self.broker.memory.answers.hold(more_bytes, self)
        self.held_bytes += more_bytes

    def let_go(self) -> None:
        """Free what was made, some at a time: to free a million structs takes a third of a second. Not in this round of
        the loop: the handler that made it may still hold it."""
        turns = self.broker.turns
        turns.wait(lambda: turns.go_through(self._dropping()))

    def _dropping(self) -> Pauses:
        for made in self.made:
            while made:
                del made[-DROPPED_AT_A_TIME:]
                yield
        held_bytes, self.held_bytes = self.held_bytes, 0
        self.broker.memory.answers.let_go(held_bytes, self)
