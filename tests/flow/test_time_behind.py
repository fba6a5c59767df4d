"""What a stage says of the time to those behind it: by its commits, wherever they fall and whatever they let go out."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from oncelog.flow import Flow, Topic, Window, json_of, text
from oncelog.flow.formats import TIME
from oncelog.flow.journal import Journal
from oncelog.flow.program import Stream
from oncelog.flow.simulating import topics_of
from oncelog.flow.simulation.chance import Dice
from oncelog.flow.simulation.duties import duties_of
from oncelog.flow.simulation.world import World
from oncelog.slots import Place
from tests.depth import deeper, scaled

clicks = Topic("clicks", text, json_of(int), partitions=2)  # all of them come to one partition
END_MS = 100
WAIT_MS = 10
SENT = [clicks.sent("anna", number, 3 * (number ^ 3)) for number in range(20)]  # four at a time from the last one on
EMPTY_FOR_EVER = 1 - clicks.partition_of(b"anna")


@dataclass(frozen=True)
class Seen:
    count: int = 0


Clicks = Stream[str, int]
STAGES: dict[str, Callable[[Clicks], Clicks]] = {
    "of the input": lambda stream: stream,
    "of calls": lambda stream: stream.call(lambda click, at: click),
    "of totals": lambda stream: stream.sum("clicks-a-key", of=lambda click: click),
    "behind another stage": lambda stream: stream.through(topic("first"), key=str),
    "behind two": lambda stream: stream.through(topic("first"), key=str).through(topic("second"), key=str),
}


def topic(name: str) -> Topic[str, int]:
    return Topic(name, text, json_of(int), partitions=2)


windows = Topic("windows", text, json_of(Window[Seen]))


def flow_of(stage: Callable[[Clicks], Clicks]) -> Flow:
    flow = Flow("f", version="1")
    behind = stage(flow.read(clicks, wait_ms=WAIT_MS)).through(topic("last"), key=str)
    behind.window("seen", Seen, lambda seen, _: Seen(seen.count + 1), size_ms=10).write(windows)
    return flow


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_windows_close_where_one_partition_of_the_source_stays_empty(stage: Callable[[Clicks], Clicks]) -> None:
    done = flow_of(stage).simulate(SENT, END_MS, crashes=True)
    assert all(each.topic.partition_of(each.key or b"") != EMPTY_FOR_EVER for each in SENT)
    assert sum(window.state.count for _, window in done[windows]) == len(done[topic("last")]) > 0


@deeper
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_behind_what_a_commit_says_stands_nothing_older(stage: Callable[[Clicks], Clicks]) -> None:
    flow = flow_of(stage)
    duties = duties_of(flow.program)
    said = 0
    for seed in range(scaled(3)):
        world = World(duties, topics_of(duties, flow.program, SENT), end_ms=END_MS, dice=Dice(seed))
        world.run()
        said += sum(commits_hold(world, duty.stage.journal) for duty in duties)
    assert said > scaled(3)


def commits_hold(world: World, place: Place) -> int:
    """Of one cell; how many of them said something."""
    journal, said = Journal(), 0
    for batch in world.topics[place].journal(0):
        journal.read([batch])
        claim, commit = journal.claim, journal.commit
        if claim is None or commit is None or commit.watermark_ms < 0:
            continue
        for output in commit.outputs:
            said += 1
            log = world.topics[Place(output.topic, output.partition)]
            behind = [
                int(dict(row.headers)[TIME] or 0)
                for stored in log.batches
                for at, row in enumerate(stored.wire.outputs.each())
                if stored.wire.identity.pid == claim.output_pid
                and stored.base_offset + at >= max(output.next_offset, 0)
            ]
            assert min(behind, default=END_MS) >= min(commit.watermark_ms, END_MS), (place, commit)
    return said
