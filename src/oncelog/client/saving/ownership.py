"""One owner at a time for what a group has committed.

Two copies of a job that start at once would both find nothing, take an identity each and write everything twice. So
what a group holds is a register (`slots/register.py`) with committed offsets as its keeper: each save is a term, and of
two saves that build upon the same one the first counts. An owner that is fenced looks again: if nothing was committed
meanwhile it goes on, otherwise another copy has taken over.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic

from oncelog.client.net import retry
from oncelog.client.register.entry import Entry
from oncelog.client.register.offsets import MetadataTooLarge, OffsetsKeeper
from oncelog.client.saving.committed import DEFAULT_LIMIT_BYTES, LIMIT_SETTING, Committed, S, Savable, put_in, take_out
from oncelog.client.saving.errors import BadSavedProducer, TakenOver
from oncelog.slots.register import Fact, Gap, Outcome, Register, Subject

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

INSTANCE_ID: Final = "oncelog.saved-producer"
SAVE: Final[Subject] = ("save",)


async def fetch_committed(brokers: "Brokers", group: str, decode: Callable[[bytes], S]) -> Committed[S]:
    """The commit that the group holds now: positions, producer, number of the save."""
    keeper = OffsetsKeeper(brokers, group, INSTANCE_ID)
    return take_out(await retry.ask(keeper.held, retry.Patience()), decode)


class Ownership(Generic[S]):
    """One producer's knowledge of the group that it is saved in."""

    def __init__(
        self,
        brokers: "Brokers",
        group: str,
        started_from: S | None,
        decode: Callable[[bytes], S],
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self._keeper = OffsetsKeeper(brokers, group, INSTANCE_ID)
        self._decode = decode
        self._limit_bytes = limit_bytes
        self._started_from = started_from  # what the group must hold at first, or somebody else has committed
        self._saves = Register()
        self._sent: tuple[int, S] | None = None  # a save that the group may hold, though nobody has heard so
        self._taken_over: TakenOver | None = None  # for good: what it knows is another's history
        self._turn = asyncio.Lock()

    async def commit(self, positions: Sequence[Entry], saved: S, *, may_add: bool = True) -> None:
        """Store positions and producer in one OffsetCommit, or raise with nothing stored. `may_add`: this cluster has
        the output topics too."""

        def entries(save: int) -> list[Entry]:
            return put_in(positions, saved, save, limit_bytes=self._limit_bytes, may_add=may_add)

        async with self._turn:
            if self._taken_over is not None:
                raise self._taken_over.with_traceback(None)  # one object, raised each time
            entries(self._saves.term or 1)  # refuse what does not fit before joining
            await retry.ask(lambda: self._commit_once(entries, saved), retry.Patience())

    async def _commit_once(self, entries: Callable[[int], list[Entry]], saved: S) -> None:
        if not self._keeper.is_member and await self._look(saved) is Outcome.OWN:
            return
        save = self._saves.term
        assert save is not None
        self._sent = save, saved
        try:
            await self._keeper.commit(entries(save))
        except MetadataTooLarge:
            raise BadSavedProducer(
                f"the brokers allow less metadata to an entry than the {self._limit_bytes} bytes that were counted on: "
                f"set `oncelog.{LIMIT_SETTING}` to the brokers' {LIMIT_SETTING}. The save is incomplete and is refused "
                "when it is loaded; commit again"
            ) from None
        self._saves.take(_fact(save, saved))
        self._sent = None

    async def leave(self) -> None:
        """Give up the ownership. A commit after this one looks first, as that of any other copy."""
        async with self._turn:
            await self._keeper.leave()

    async def _look(self, saved: S) -> Outcome:
        """Become the owner, and see what the group holds: the save that this one builds upon, or, where the answer to
        a commit was lost, that very one."""
        await self._keeper.join()
        try:
            held = take_out(await self._keeper.held(), self._decode)
            outcome = self.came_of(held, saved)
            if outcome in (Outcome.OPEN, Outcome.OWN):
                return outcome
            self._taken_over = TakenOver(
                f"group {self._keeper.group!r} holds save {held.save} of a producer that this one was not started "
                "from: another copy of the job has committed meanwhile. Nothing was stored; stop this copy, or load "
                "again and start anew"
            )
            raise self._taken_over
        except BaseException:
            self._keeper.forget()  # a member has seen what the group holds; this one has not
            raise

    def came_of(self, held: Committed[S], saved: S) -> Outcome:
        mine = self._saves.term
        if mine is None and held.saved != self._started_from:
            return Outcome.OTHERS
        try:
            self._saves.take(_fact(held.save, held.saved))
        except Gap:
            return Outcome.OTHERS
        if self._saves.outcome(SAVE, held.saved, held.save) is not Outcome.OWN:
            return Outcome.OTHERS  # older than what was known: the group was deleted, or put back
        outcome = self._saves.outcome(SAVE, saved, mine or held.save + 1)
        is_our_last = outcome is Outcome.OTHERS and (held.save, held.saved) == self._sent
        return Outcome.OPEN if is_our_last else outcome  # given up without an answer; this save builds upon it


def _fact(save: int, saved: Savable | None) -> Fact:
    return Fact(saved, saved, (SAVE,), save, opens=save + 1)
