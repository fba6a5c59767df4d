"""How far has an identity got? A running producer asks this when answers were lost (`LookUp` of the slots). This asks
brokers and log what `slots/standing.py` wants to know, and is told there what follows."""

import asyncio
from typing import TYPE_CHECKING, Final

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.fetching.values import EARLIEST
from oncelog.client.net.offsets import WHOLE_LOG, end_offsets
from oncelog.client.saving.errors import in_words
from oncelog.client.saving.fencing import fence
from oncelog.client.saving.memory import remembered_or_none
from oncelog.client.saving.read_back import stored_spans
from oncelog.slots import HighWater, Place
from oncelog.slots.messages import Found, LookUp
from oncelog.slots.questions import Ask, End
from oncelog.slots.standing import LookingUp, Reach, SpansRead

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

REPLICATION_PAUSE_S: Final = 0.05
REPLICATION_TRIES: Final = 20  # then it is asked anew: another may lead by now


async def look_up(brokers: "Brokers", asked: LookUp) -> Found:
    """H(P) below the high watermark, and where the batches lie; the caller asks again after a retriable failure."""
    looking = LookingUp(asked)
    leader = brokers.metadata.leader(*asked.place)
    while isinstance(looking.asks, Ask):
        answer = await _answer(brokers, looking.asks, asked, leader)
        with in_words():
            looking.answered(answer)
    if looking.asks is End.ASK_AGAIN:
        words = (
            f"{looking.where}: the leader has more of producer {asked.identity.pid} than lies below the high watermark"
        )
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))
    return looking.found


async def _answer(
    brokers: "Brokers", ask: Ask, asked: LookUp, leader: tuple[int, int]
) -> HighWater | SpansRead | Reach | None:
    place, identity = asked.place, asked.identity
    if ask is Ask.FENCE:
        return (await fence(brokers, {place: identity}))[place]
    if ask is Ask.MEMORY:
        return (await remembered_or_none(brokers, {place: identity.pid}))[place]
    if ask is Ask.WATERMARK:
        return await reach(brokers, place, leader)
    from_offset = asked.from_offset
    if from_offset < 0:
        from_offset = (await end_offsets(brokers, [place], EARLIEST))[place]
    is_lease = ask is Ask.LOG_OF_LEASE
    return SpansRead(await stored_spans(brokers, place, identity, from_offset, any_generation=is_lease))


async def reach(brokers: "Brokers", place: Place, leader: tuple[int, int]) -> Reach:
    """Whether all that the leader has by now comes to lie below the high watermark, in a second or so. Only a leader
    says where its log ends, and it is to be the one still that was it before its memory was asked for."""
    end = (await end_offsets(brokers, [place], replica_id=WHOLE_LOG))[place]
    for _ in range(REPLICATION_TRIES):
        high = (await end_offsets(brokers, [place]))[place]
        found = Reach(end, high, brokers.metadata.leader(*place) == leader)
        if found.is_reached or not found.is_one_leaders:
            break
        await asyncio.sleep(REPLICATION_PAUSE_S)
    return found
