"""Another version of the code, tried on what stands in journals and outputs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from oncelog.flow import Context, Dead, Flow, Sent, Topic, json_of, text
from oncelog.flow.formats import COMMIT, Commit, InputPosition, OutputPosition, Plan, Range, decoded
from oncelog.flow.messages import EMPTY, JournalBatch
from oncelog.flow.operations.windows import Window
from oncelog.flow.program import Program
from oncelog.flow.simulating import topics_of
from oncelog.flow.simulation.chance import Dice, faults_of
from oncelog.flow.simulation.duties import Duty, duties_of
from oncelog.flow.simulation.topics import Topics
from oncelog.flow.simulation.world import World
from oncelog.flow.trying import Committed, Past, Room, Trial, is_simple, past_of, tried, why_not

MOST = 1_000


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Owed:
    amount: int = 0


orders = Topic("orders", text, json_of(Order), partitions=2)
refunds = Topic("refunds", text, json_of(Order), partitions=2)
between = Topic("by-customer", text, json_of(Order), partitions=2)
sums = Topic("sums", text, json_of(Owed), partitions=2)
windows = Topic("windows", text, json_of(Window[Owed]))
owed_by = Topic("owed-by", text, json_of(Owed), partitions=2)
counts = Topic("counts", text, json_of(int))
dead = Dead("dead")

SENT = [
    (orders if at % 3 else refunds).sent(f"o{at % 5}", Order("abcd"[at % 4], at), 1_000 + 7 * at - 200 * (at % 7 == 6))
    for at in range(30)
] + [Sent(orders, b"o1", b"no order", 1_500)]

TAKEN = [each for each in SENT[:-1] if each.topic is orders]


def flow(add: Callable[[Owed, Order], Owed] = lambda owed, order: Owed(owed.amount + order.amount)) -> Program:
    """A merge, a regrouping with what cannot be worked on, a state, windows and totals."""

    def book(owed: Owed, order: Order, _: Context[str]) -> tuple[Owed | None, list[Owed]]:
        total = add(owed, order)
        return (total if total.amount < 60 else None), [total]

    made = Flow("f", version="1", otherwise=dead)
    merged = made.read(orders).merge("all", made.read(refunds))
    grouped = merged.through(between, key=lambda order: order.customer)
    grouped.step("owed", Owed, book).write(sums)
    again = made.read(orders, name="again")
    again.window("w", Owed, add, size_ms=50).write(windows)
    made.read(refunds, name="counted").count("n").write(counts)
    return made.program


def ran(program: Program, sent: Iterable[Sent] = SENT, seed: int | None = None) -> Topics:
    """What stands when all is done; with a seed of a history in which much went wrong."""
    duties = duties_of(program)
    dice, faults = (None, ()) if seed is None else (Dice(seed), faults_of(Dice(~seed), 1_500))
    world = World(duties, topics_of(duties, program, tuple(sent)), end_ms=3_000, dice=dice, faults=faults)
    world.run()
    return world.topics


def past_in(topics: Topics, duty: Duty, batches: list[JournalBatch] | None = None, most: int = MOST) -> Past | None:
    journal = topics[duty.stage.journal].journal(0) if batches is None else batches
    at = [0] * len(duty.inputs)
    return past_of(journal, most, starts=at, begins_at=at, is_simple=is_simple(duty.part))


def compacted(batches: list[JournalBatch], dirty: int) -> list[JournalBatch]:
    """All but so many of the last ones."""
    clean = batches[: len(batches) - dirty]
    newest = {key: batch.base_offset + at for batch in clean for at, key in enumerate(batch.keys)}
    left = []
    for batch in clean:
        rows = [row for at, row in enumerate(batch.rows) if newest[row[0]] == batch.base_offset + at]
        left.append(replace(batch, keys=[key for key, _ in rows], values=[value for _, value in rows]))
    return [*(each for each in left if each.keys), *batches[len(clean) :]]


def trials(program: Program, topics: Topics, most: int = MOST) -> list[Trial]:
    found = []
    for duty in duties_of(program):
        past = past_in(topics, duty, most=most)
        if past is not None:
            found.append(trial(duty, topics, past))
    return found


def trial(duty: Duty, topics: Topics, past: Past, room: Room | None = None, **how: Any) -> Trial:
    positions = zip(duty.inputs, past.base.inputs, past.last.inputs, strict=True)
    inputs = [
        EMPTY if place in duty.tables else topics[place].records(first.next_offset, last.next_offset)
        for place, first, last in positions
    ]
    pid = past.claim.output_pid
    stands = {place: topics[place].written_by(pid)[slots.start : slots.stop] for place, slots in past.slots.items()}
    return tried(duty.part, duty.stage.cell, past, inputs, stands, room, **how)


@pytest.mark.parametrize("seed", [None, *range(25)])
@pytest.mark.parametrize("most", [MOST, 5])
def test_the_same_code_differs_in_nothing_whatever_happened(seed: int | None, most: int) -> None:
    topics = ran(flow(), seed=seed)
    found = trials(flow(), topics, most)
    assert [each for each in found if each.outputs_differ or each.states_differ] == []
    assert sum(each.records for each in found) > len(found)
    assert sum(each.outputs for each in found) == sum(each.same for each in found) > len(found)
    assert all(each.commits == 1 or each.records <= most for each in found)
    if most == MOST:
        written = sum(topics[place].end for place in topics if place.topic in ("sums", "by-customer", "windows"))
        assert sum(each.outputs for each in found) >= written


def test_a_plan_that_was_left_in_its_middle_is_gone_through_once() -> None:
    """Half of the only range is committed, with the whole of it as what is left."""
    made = Flow("f", version="1")
    made.read(orders).merge("all", made.read(refunds)).write(between)
    topics = ran(made.program, ONE_PLACE)
    (duty,) = [each for each in duties_of(made.program) if topics[each.inputs[0]].end]
    past = past_in(topics, duty)
    assert past is not None
    plan = Plan([Range(0, 0, 6)], [], 0)

    def at(number: int, taken: int, plan: Plan | None) -> Committed:
        inputs = [InputPosition("id", taken), InputPosition("id", 0)]
        (place,) = past.slots
        outputs = [OutputPosition(*place, "id", taken, -1)]
        return Committed(Commit(number=number, nonce="n", code="1", inputs=inputs, outputs=outputs, plan=plan), {}, ())

    left = Past(past.claim, [at(1, 0, plan), at(2, 3, plan), at(3, 6, None)], {}, {})
    found = trial(duty, topics, left)
    assert (found.same, found.records, found.outputs_differ) == (6, 6, False)


def test_what_is_written_differently_is_shown_with_what_stands_there() -> None:
    topics = ran(flow())
    found = trials(flow(lambda owed, order: Owed(owed.amount + order.amount + (order.amount == 17))), topics)
    by_stage = {each.stage: 0 for each in found}
    for each in found:
        by_stage[each.stage] += each.gone
        assert each.gone == each.new
    assert by_stage["all"] == by_stage["counted"] == 0 < by_stage["by-customer"]
    one = next(each for each in found if each.stage == "by-customer" and each.differences)
    differ = one.differences[0]
    assert differ.stands is not None and differ.comes is not None
    assert differ.stands.key == differ.comes.key == b"b" and differ.place.topic == "sums"
    assert (
        sums.value.decode(differ.comes.value or b"").amount == sums.value.decode(differ.stands.value or b"").amount + 1
    )
    assert one.states_differ == 0 or one.states[0][1] != one.states[0][2]


@pytest.mark.parametrize("dirty", [0, 1, 4, 9])
def test_it_goes_on_from_where_compaction_left_all_that_was_written_later(dirty: int) -> None:
    topics = ran(flow(), seed=3)
    found = []
    for duty in duties_of(flow()):
        batches = topics[duty.stage.journal].journal(0)
        past = past_in(topics, duty, compacted(batches, dirty))
        commits = sum(COMMIT in batch.keys for batch in batches[len(batches) - dirty :])
        assert past is not None and len(past.steps) <= commits + 2 + is_simple(duty.part)
        found.append(trial(duty, topics, past))
    assert [each for each in found if each.outputs_differ or each.states_differ] == []
    assert dirty < 4 or sum(each.commits for each in found) > len(found)


def one_stage(function: Callable[[Order], list[Order]], otherwise: Dead | None = None) -> Program:
    made = Flow("f", version="1", otherwise=otherwise)
    made.read(orders).flat_map(function).write(between)
    return made.program


ONE_PLACE = [orders.sent("o1", Order("anna", at), at) for at in range(6)]
LIMITED = {"gone": 0, "new": 0, "moved": 0}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda order: [order] if order.amount != 2 else [], {"gone": 1}),
        (lambda order: [order] * (1 + (order.amount == 2)), {"new": 1}),
        (lambda order: [Order("bert", 9)] if order.amount == 2 else [order], {"gone": 1, "new": 1}),
    ],
)
def test_what_is_gone_and_new_is_counted(function: Callable[[Order], list[Order]], expected: dict[str, int]) -> None:
    topics = ran(one_stage(lambda order: [order]), ONE_PLACE)
    (found,) = trials(one_stage(function), topics)
    assert {name: getattr(found, name) for name in LIMITED} == LIMITED | expected
    assert found.same + found.gone == found.outputs == 6
    assert len(found.differences) == max(expected.values())


def test_what_comes_in_another_order_has_moved() -> None:
    topics = ran(one_stage(lambda order: [order, Order("anna", 9)]), ONE_PLACE)
    (found,) = trials(one_stage(lambda order: [Order("anna", 9), order]), topics)
    assert (found.gone, found.new, found.moved, found.outputs) == (0, 0, 12, 12)
    assert found.outputs_differ and found.differences[0].stands != found.differences[0].comes


def test_a_dead_letter_is_compared_without_the_words_of_its_exception() -> None:
    def unlucky(words: str) -> Callable[[Order], list[Order]]:
        def function(order: Order) -> list[Order]:
            if order.amount == 2:
                raise ValueError(words)
            return [order]

        return function

    topics = ran(one_stage(unlucky("one"), dead), ONE_PLACE)
    (found,) = trials(one_stage(unlucky("other"), dead), topics)
    assert not found.outputs_differ and found.outputs == 6
    (found,) = trials(one_stage(lambda order: [order], dead), topics)
    assert (found.gone, found.new) == (1, 1)


def test_where_the_new_code_stops_is_said_and_what_came_before_is_compared() -> None:
    topics = ran(one_stage(lambda order: [order]), ONE_PLACE)
    (found,) = trials(one_stage(lambda order: [Order("anna", 6 // (order.amount - 5))]), topics)
    assert found.failure is not None and "offset 5 of orders: ZeroDivisionError" in found.failure
    assert found.outputs_differ


def test_new_code_that_writes_more_than_there_is_memory_for_is_stopped_with_words() -> None:
    topics = ran(one_stage(lambda order: [order]), ONE_PLACE)
    large = one_stage(lambda order: [Order("anna" * 1_000, order.amount)] * 100)
    found = [
        trial(duty, topics, past, Room(most=100_000))
        for duty in duties_of(large)
        if (past := past_in(topics, duty)) is not None
    ]
    (failure,) = [each.failure for each in found if each.failure]
    assert "of orders, where its outputs since commit" in failure and "Try less of them (--records)" in failure


def test_what_is_compared_gives_its_room_back() -> None:
    program = one_stage(lambda order: [order])
    topics = ran(program, ONE_PLACE)
    room = Room(most=6 * 1_000)
    for duty in duties_of(program):
        if (past := past_in(topics, duty)) is not None:
            assert trial(duty, topics, past, room).failure is None
    assert room.left == 6 * 1_000


def test_the_differences_that_are_kept_have_a_bound_in_bytes() -> None:
    topics = ran(one_stage(lambda order: [order]), ONE_PLACE)
    (found,) = trials(one_stage(lambda order: [Order("a" * 600_000, order.amount)]), topics)
    assert (found.new, len(found.differences)) == (6, 2)


def test_input_that_retention_took_is_not_tried_on() -> None:
    topics = ran(flow())
    (duty, *_) = duties_of(flow())
    whole = past_in(topics, duty)
    assert whole is not None and whole.base.number == 0
    starts = [each.next_offset for each in whole.steps[3].commit.inputs]
    journal = topics[duty.stage.journal].journal(0)
    past = past_of(journal, MOST, starts=starts, begins_at=None, is_simple=False)
    assert past is not None and past.base.number > 0
    assert [each.next_offset for each in past.base.inputs] == starts
    assert not trial(duty, topics, past).outputs_differ


def joining(function: Callable[[Order, Owed], Order]) -> Program:
    made = Flow("f", version="1")
    made.read(orders).join(made.table(owed_by), function).write(between)
    return made.program


@pytest.mark.parametrize("seed", [None, *range(10)])
@pytest.mark.parametrize("most", [MOST, 5])
def test_a_join_is_tried_with_the_rows_that_stand_in_its_commits(seed: int | None, most: int) -> None:
    """Those in the table's topic may be gone."""
    rows = [owed_by.sent(f"o{at % 5}", Owed(at), 1_000 + 20 * at) for at in range(15)]
    topics = ran(joining(lambda order, owed: Order(order.customer, owed.amount)), [*TAKEN, *rows], seed)
    same, other = (
        trials(joining(function), topics, most)
        for function in (
            lambda order, owed: Order(order.customer, owed.amount),
            lambda order, owed: Order(order.customer, owed.amount + owed.amount % 2),
        )
    )
    assert not any(each.outputs_differ or each.states_differ for each in same)
    # With few records nothing may be written between two commits.
    assert most != MOST or (sum(each.same for each in same) > 0 and any(each.outputs_differ for each in other))


def filing(function: Callable[[Order], Order]) -> Program:
    made = Flow("f", version="1")
    made.read(orders, wait_ms=50).map(function).files("s3://lake", rows=Order, every_ms=5, most_records=4)
    return made.program


def test_files_are_compared_row_by_row_with_those_that_stand_there() -> None:
    hour_ms = 3_600_000
    sent = [orders.sent(f"o{at % 5}", Order("anna", at), 1_000 + at * hour_ms // 4) for at in range(30)]
    duties = duties_of(filing(lambda order: order))
    world = World(duties, topics_of(duties, filing(lambda order: order), tuple(sent)), end_ms=20 * hour_ms)
    world.run()
    there = {name: rows for (_, name), rows in world.files.items()}

    def read(names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        return {name: there[name] for name in names if name in there}

    def tries(program: Program) -> list[Trial]:
        duties = duties_of(program)
        pasts = [(duty, past) for duty in duties if (past := past_in(world.topics, duty)) is not None]
        return [trial(duty, world.topics, past, read_files=read) for duty, past in pasts]

    same = tries(filing(lambda order: order))
    assert sum(each.outputs for each in same) == sum(each.same for each in same) == 30
    other = tries(filing(lambda order: replace(order, amount=99 if order.amount == 7 else order.amount)))
    assert [(each.gone, each.new) for each in other if each.outputs_differ] == [(1, 1)]
    (differ,) = (each for found in other for each in found.differences)
    assert differ.stands is not None and differ.comes is not None
    assert b'"amount":7,' in (differ.stands.value or b"") and b'"amount":99,' in (differ.comes.value or b"")
    assert differ.place.topic == "s3://lake" and (differ.comes.key or b"").startswith(b"hour=1970-01-01T01/orders-f")


def calling(function: Callable[[Order, Context[str]], Order]) -> Program:
    made = Flow("f", version="1")
    made.read(orders).call(function, name="rate").write(between)
    return made.program


@pytest.mark.parametrize("seed", [None, *range(5)])
def test_a_call_is_tried_where_it_is_made_or_another_function_stands_in(seed: int | None) -> None:
    program = calling(lambda order, at: Order(at.id, order.amount))
    topics = ran(program, TAKEN, seed)
    (part,) = program.parts
    assert why_not(part, ["rate"]) is None
    assert "the call rate. `--call rate` makes it, and `--call rate=MODULE:FUNCTION`" in (why_not(part, []) or "")
    assert not any(each.outputs_differ for each in trials(program, topics))
    program.call_instead("rate", lambda order, at: Order("other", order.amount))
    assert sum(each.gone for each in trials(program, topics)) == sum(each.new for each in trials(program, topics)) > 0
    with pytest.raises(ValueError, match="flow f: rate: None is no function"):
        program.call_instead("rate", None)


def test_it_goes_on_behind_a_commit_that_is_missing() -> None:
    topics = ran(flow())
    (duty, *_) = duties_of(flow())
    journal = topics[duty.stage.journal].journal(0)
    at = next(at for at, batch in enumerate(journal) if _number(batch) == 2)
    past = past_in(topics, duty, [*journal[:at], *journal[at + 1 :]])
    assert past is not None and past.base.number == 3


def _number(batch: JournalBatch) -> int:
    found = [decoded(key, value) for key, value in batch.rows if key == COMMIT and value]
    return found[0].number if found and isinstance(found[0], Commit) else -1


def test_what_began_behind_its_first_commit_is_another_beginning() -> None:
    topics = ran(flow())
    (duty, *_) = duties_of(flow())
    journal = topics[duty.stage.journal].journal(0)
    past = past_of(journal, MOST, starts=[0, 0], begins_at=[7, 7], is_simple=False)
    assert past is not None and past.base.number == 1
