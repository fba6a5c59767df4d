"""Operations on a flow from outside: it is paused, goes on, begins anew, is removed.

Those at work hear of it by the register.
"""

from collections.abc import Collection
from typing import Final
from uuid import uuid4

from oncelog.client import KafkaException
from oncelog.client.door import EARLIEST, LATEST, Patience, Timeouts, delete_topics, end_offsets, until_heard
from oncelog.flow.errors import FlowRefused
from oncelog.flow.register import Control, FlowRegister, Order, Reset, Start, encoded
from oncelog.runner.layout import PREFIX
from oncelog.runner.looking import CellLook, Looking

DELETING_MS: Final = 30_000
HEARD: Final = Patience(5.0, 0.05)


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


async def at_rest(
    look: Looking, flow: str, register: FlowRegister, *, with_damaged: bool = False
) -> dict[tuple[str, int], CellLook]:
    """Its cells, by stage and number, where nobody may be at work; else FlowRefused. Their states are let go.

    `with_damaged`: the user has said that nobody is at work for the cells whose journals cannot be read."""
    found = {}
    async for cell in look.cells(flow, register, with_damaged=True):
        if cell.damage and not with_damaged:
            raise FlowRefused(
                f"flow {flow}, stage {cell.stage}, cell {cell.cell}: {cell.damage}. So it is not known how far it "
                "was, nor whether a process holds it. End all processes of the flow, and say so with --damaged"
            )
        _check_nobody_is_at_work(flow, cell)
        cell.journal.state.clear()
        found[cell.stage, cell.cell] = cell
    return found


def _check_nobody_is_at_work(flow: str, look: CellLook) -> None:
    left_ms = look.busy_until_ms - look.looked_at_ms
    if left_ms > 0:
        raise FlowRefused(
            f"flow {flow}, stage {look.stage}, cell {look.cell} is held by a process that has not said goodbye. Stop "
            f"it; one that was killed sends nothing after {left_ms // 1000 + 1} s, then this can be done"
        )


async def own_topics(look: Looking, flow: str, register: FlowRegister) -> list[str]:
    """The topics that the flow made; the register last, since by it the others are found."""
    known = (await look.cluster.brokers.refresh()).topics
    made = register.flow_parts
    parts = [] if made is None else made.parts
    between = {source for _, source, _ in parts} & {sink for *_, sink in parts}
    journals = {f"{PREFIX}{flow}.{each.stage}" for each in register.stages}
    return [name for name in (*sorted(journals | between), PREFIX + flow) if name in known]


async def planned_reset(
    look: Looking, flow: str, register: FlowRegister, stages: Collection[str], *, to_latest: bool
) -> Reset:
    """The plan of a reset. Topics that stages which begin anew will write again are read from their end on."""
    brokers = look.cluster.brokers
    parts = [] if register.flow_parts is None else register.flow_parts.parts
    refilled = {sink for stage, _, sink in parts if stage in stages}
    known = (await brokers.refresh()).topics
    starts: dict[str, dict[str, Start]] = {}
    for stage in stages:
        starts[stage] = {}
        for topic in register.sources(stage):
            if topic not in known:
                raise FlowRefused(
                    f"topic {topic}, which stage {stage} of flow {flow} reads, is not there: make it first"
                )
            places = [(topic, cell) for cell in range(register.cells(stage) or 0)]
            at = LATEST if to_latest or topic in refilled else EARLIEST
            offsets = await end_offsets(brokers, places, at)
            starts[stage][topic] = Start(str(known[topic].topic_id or ""), [offsets[place] for place in places])
    names = {stage: f"{PREFIX}{flow}.{stage}" for stage in stages}
    ids = {stage: str(known[name].topic_id or "") if name in known else "" for stage, name in names.items()}
    return Reset(nonce=uuid4().hex, journals=ids, starts=starts)


async def reset(look: Looking, flow: str, entry: Reset, *, with_damaged: bool = False) -> None:
    """It is written down first, so that a flow that begins meanwhile is refused until the journals are gone."""
    topic = look.register_topic(flow)
    register = await topic.append(await topic.read(), [encoded(entry)])
    await at_rest(look, flow, register, with_damaged=with_damaged)
    known = (await look.cluster.brokers.refresh()).topics
    await remove(look, [name for stage in entry.journals if (name := f"{PREFIX}{flow}.{stage}") in known])


async def remove(look: Looking, names: list[str]) -> None:
    """One after the other, so that the register goes last."""
    for name in names:
        outcome = (await delete_topics(look.cluster.brokers, [name], Timeouts(DELETING_MS)))[name]
        if isinstance(outcome, KafkaException):
            raise FlowRefused(f"topic {name} cannot be removed: {outcome.error.str()}. Mend that, and do this again")
    # A process that begins now is to find it so.
    await until_heard(look.cluster.brokers.refresh, lambda now: now.topics.keys().isdisjoint(names), HEARD)
