"""What is done to a flow from outside: it is paused, goes on, or is removed. Whoever is at work hears of it by the
register."""

from typing import Final
from uuid import uuid4

from oncelog.client import KafkaException
from oncelog.client.door import Timeouts, delete_topics
from oncelog.flow.errors import FlowRefused
from oncelog.flow.register import Control, FlowRegister, Order, encoded
from oncelog.runner.layout import PREFIX
from oncelog.runner.looking import CellLook, Looking

DELETING_MS: Final = 30_000


async def give(look: Looking, flow: str, order: Order) -> bool:
    """Whether it is another order than before. Of two that are given at once one counts, and the other is refused."""
    topic = look.register_topic(flow)
    known = await topic.read()
    if known.order is order:
        return False
    control = Control(nonce=uuid4().hex, number=known.number + 1, order=order)
    known = await topic.append(known, [encoded(control)])
    counts = known.control(control.number)
    if counts is not None and counts.nonce != control.nonce:
        raise FlowRefused(
            f"somebody else gave flow {flow} an order at the same moment, {counts.order.value}, and that one counts. "
            "Give yours again if you still mean it"
        )
    return True


def check_nobody_is_at_work(flow: str, look: CellLook) -> None:
    if look.holder is not None:
        left_s = max(1, (look.holder.until_ms - look.looked_at_ms) // 1000)
        raise FlowRefused(
            f"flow {flow}, stage {look.stage}, cell {look.cell} is held by a process that has not said goodbye. Stop "
            f"it; one that was killed sends nothing after {left_s} s, then this can be done"
        )


async def own_topics(look: Looking, flow: str, register: FlowRegister) -> list[str]:
    """Those that it made; the register last, since by it the others are found."""
    known = (await look.cluster.brokers.refresh()).topics
    identity = register.identity
    parts = [] if identity is None else identity.parts
    between = {source for _, source, _ in parts} & {sink for *_, sink in parts}
    journals = {f"{PREFIX}{flow}.{each.stage}" for each in register.stages}
    return [name for name in (*sorted(journals | between), PREFIX + flow) if name in known]


async def remove(look: Looking, names: list[str]) -> None:
    """One after the other, so that the register goes last."""
    for name in names:
        outcome = (await delete_topics(look.cluster.brokers, [name], Timeouts(DELETING_MS)))[name]
        if isinstance(outcome, KafkaException):
            raise FlowRefused(f"topic {name} cannot be removed: {outcome.error.str()}. Then do this again")
