"""What the leader has and its followers lack is neither stored nor "not there": how that is asked."""

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client.errors import KafkaException
from oncelog.client.net.offsets import WHOLE_LOG
from oncelog.client.saving import look_up
from oncelog.slots import HighWater, Identity, Place
from oncelog.slots.messages import Found, LookUp

PLACE = Place("t", 0)


@pytest.mark.parametrize(
    "high, then, is_stored", [(7, (1, 5), True), (9, (1, 5), True), (6, (1, 5), False), (9, (2, 6), False)]
)
async def test_what_is_remembered_counts_when_all_that_the_leader_had_is_below_the_high_watermark(
    monkeypatch: pytest.MonkeyPatch, high: int, then: tuple[int, int], is_stored: bool
) -> None:
    """Nobody knows where in the log it is, so it must be all of it, and one leader's."""
    leaders = chain([(1, 5)], repeat(then))

    async def remembered(brokers: object, pids: object) -> dict[Place, HighWater]:
        return {PLACE: HighWater(0, 4)}

    async def ends(brokers: object, places: object, *, replica_id: int = -1) -> dict[Place, int]:
        return {PLACE: 7 if replica_id == WHOLE_LOG else high}

    monkeypatch.setattr(look_up, "remembered_or_none", remembered)
    monkeypatch.setattr(look_up, "end_offsets", ends)
    monkeypatch.setattr(look_up, "REPLICATION_PAUSE_S", 0)
    brokers: Any = SimpleNamespace(metadata=SimpleNamespace(leader=lambda *place: next(leaders)))
    asked = LookUp(PLACE, Identity(1 << 32, 0), -1, False)
    if is_stored:
        assert await look_up.look_up(brokers, asked) == Found(4, 0)
    else:
        with pytest.raises(KafkaException) as refused:
            await look_up.look_up(brokers, asked)
        assert refused.value.error.retriable()
