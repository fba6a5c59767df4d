"""The daily commit of the same boundary never goes behind one that came while it waited for its turn."""

from typing import Any

from oncelog.client.saving.committing import _Committer
from oncelog.client.saving.saved import SavedProducer


class _Stored(_Committer):
    def __init__(self) -> None:
        super().__init__(None, "group", _Saving(), 4096)  # type: ignore[arg-type]
        self.stored: list[SavedProducer] = []

    async def _store(self, positions: Any, value: SavedProducer) -> None:
        self.stored.append(value)
        self._last = value


class _Saving:
    started_from = None


def _value() -> SavedProducer:
    return SavedProducer(cluster_id="c", partitioner="consistent_random", made_at_ms=0, topics={})


async def test_a_boundary_that_is_not_the_last_one_any_more_is_not_committed_again() -> None:
    committer, old, new = _Stored(), _value(), _value()
    await committer._turn.acquire()
    committer._last = new  # by the commit that has the turn
    committer._turn.release()
    await committer._commit_again(old, 1000.0)
    assert committer.stored == []
    await committer._commit_again(new, 1000.0)
    assert len(committer.stored) == 1
    assert committer._again is not None
    committer._again.cancel()
