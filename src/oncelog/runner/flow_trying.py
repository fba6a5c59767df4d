"""Other code of a flow, tried on what the flow has committed in a cluster: that is read, and nothing is written."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from itertools import chain
from typing import Any, Final

from oncelog.client import KafkaError, KafkaException
from oncelog.client.door import EARLIEST, end_offsets, slots
from oncelog.flow.actions import other_inputs, other_outputs
from oncelog.flow.description import Stage
from oncelog.flow.errors import FlowRefused
from oncelog.flow.messages import EMPTY, Records
from oncelog.flow.program import Program
from oncelog.flow.register import FlowRegister
from oncelog.flow.trying import MOST_BYTES, Past, ReadFiles, Room, TooMuch, Trial, is_simple, past_of, tried, why_not
from oncelog.producers.sequences import sequence_after
from oncelog.runner.agreeing import check_is_this_flow
from oncelog.runner.cluster import journal_batches
from oncelog.runner.layout import Layout, StageLayout, TopicIds
from oncelog.runner.looking import Looking
from oncelog.runner.topics import check_counts
from oncelog.slots import Identity, Place, Span
from oncelog.slots.replay import Output

PATIENCE_S: Final = 30.0
MOST_RECORDS: Final = 10_000  # at a time


async def trials(
    look: Looking,
    program: Program,
    register: FlowRegister,
    stages: Collection[str],
    most: int,
    called: Collection[str] = (),
) -> AsyncIterator[Trial]:
    """Cell by cell, over at most `most` records in and out of each, or one commit. FlowRefused where it cannot be
    tried. Cells that have committed nothing are left out. `called`: calls that are made."""
    layout = Layout(program)
    brokers = look.cluster.brokers
    check_is_this_flow(layout, register)
    names = [*layout.partitions, *(stage.journal for stage in layout.stages)]
    known = (await brokers.refresh(names)).topics
    counts = {name: len(known[name].partitions) if name in known else 0 for name in names}
    if missing := check_counts(look.cluster, layout, counts, layout.between):
        raise FlowRefused(f"flow {layout.flow}: {', '.join(missing)} not there: run it first, or it was removed")
    ids = TopicIds({name: str(known[name].topic_id or "") for name in names})
    for stage in layout.stages:
        if stage.name not in stages:
            continue
        if (why := why_not(stage.part, called)) is not None:
            others = [each.name for each in layout.stages if why_not(each.part, called) is None]
            remedy = f" Try the others: {' '.join(f'--stage {name}' for name in others)}" if others else ""
            raise FlowRefused(f"flow {layout.flow}, stage {stage.name}: {why}.{remedy}")
        places = [(name, cell) for name in stage.inputs for cell in range(stage.cells)]
        starts = await end_offsets(brokers, places, EARLIEST)
        begins_at = TopicIds(ids.ids).after(register.starts(stage.name)).log_starts
        for cell in range(stage.cells):
            here = stage.stage(layout.flow, cell, TopicIds(ids.ids, starts))
            past = await _past(look, stage, here, [begins_at.get((name, cell), 0) for name in stage.inputs], most)
            if past is not None:
                room = Room(MOST_BYTES)
                try:
                    inputs, stands = await _inputs(look, stage, here, past, room), await _stands(look, past, room)
                except TooMuch:
                    raise FlowRefused(
                        f"{here.title}: what it read and wrote since commit {past.base.number} takes more than "
                        f"{MOST_BYTES >> 20} MB of memory. Try less of it (--records)"
                    ) from None
                yield tried(stage.part, cell, past, inputs, stands, room, _files(stage))


async def _past(look: Looking, layout: StageLayout, stage: Stage, begins_at: list[int], most: int) -> Past | None:
    starts = [0 if each.is_table else each.log_start for each in stage.inputs]
    past = past_of(
        await journal_batches(look.cluster.brokers, stage.journal, 0),
        most,
        starts=starts,
        begins_at=begins_at if all(at >= start for at, start in zip(begins_at, starts, strict=True)) else None,
        is_simple=is_simple(layout.part),
    )
    why = past and (other_inputs(stage, past.last) or other_outputs(stage, past.last))
    if why:
        raise FlowRefused(why)
    return past


async def _inputs(look: Looking, layout: StageLayout, stage: Stage, past: Past, room: Room) -> list[Records]:
    return [
        await _records(
            look,
            Place(branch.source.name, stage.cell),
            past.base.inputs[index].next_offset,
            past.last.inputs[index].next_offset,
            room,
            has_headers=branch.has_headers,
        )
        if not branch.is_table
        else EMPTY
        for index, branch in enumerate(layout.part.inputs)
    ]


async def _records(look: Looking, place: Place, first: int, end: int, room: Room, *, has_headers: bool) -> Records:
    if first >= end:
        return EMPTY
    arrived = asyncio.Event()
    failures: list[KafkaError] = []

    def failed(error: KafkaError) -> None:
        failures.append(error)
        arrived.set()

    reading = look.cluster.read(place, first, arrived.set, failed, end, has_headers=has_headers)
    found: Records = Records([], [], [], [], [] if has_headers else None)
    try:
        while not reading.is_at_end:
            arrived.clear()
            piece = reading.take(MOST_RECORDS)
            if piece is not None:
                room.take(chain(piece.keys, piece.values), len(piece.offsets))
                for column, more in zip(found, piece, strict=False):
                    if column is not None:
                        column.extend(more)  # type: ignore[union-attr]
            elif failures:
                raise KafkaException(failures[0])
            elif not reading.is_at_end:
                await asyncio.wait_for(arrived.wait(), PATIENCE_S)
    except TimeoutError as late:
        raise FlowRefused(
            f"{place.topic}-{place.partition}: nothing came from offset {reading.position} on within {PATIENCE_S:g} s. "
            "Is its broker well?"
        ) from late
    finally:
        reading.end()
    return found


def _files(layout: StageLayout) -> ReadFiles:
    """The files that it has written."""
    if layout.part.files is None:
        return lambda names: {}
    from oncelog.runner.storing.place import FilePlace, Unreachable

    url = layout.part.files.url

    def read(names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        try:
            return FilePlace(url).rows(names)
        except (Unreachable, OSError) as failure:
            raise FlowRefused(f"stage {layout.name}: {failure}") from failure

    return read


async def _stands(look: Looking, past: Past, room: Room) -> dict[Place, list[Output]]:
    offsets = {Place(each.topic, each.partition): each.next_offset for each in past.base.outputs}
    found: dict[Place, list[Output]] = {}
    for place, filled in past.slots.items():
        identity = Identity(past.claim.output_pid, 0)
        span = Span(identity, sequence_after(filled.start, 0), len(filled))
        portions = slots(look.cluster.brokers, *place, span, max(0, offsets.get(place, 0)))
        found[place] = []
        async for portion in portions:
            stand = [Output(*each[3:6], None) for each in portion]
            room.take_outputs(stand)
            found[place] += stand
        if len(found[place]) != len(filled):
            raise FlowRefused(
                f"{place.topic}-{place.partition}: of {len(filled)} records that were written since commit "
                f"{past.base.number} of its cell {len(found[place])} stand there: retention or compaction took the "
                "others. Try less of them (--records)"
            )
    return found
