"""Records that came before are left out, by what is kept of them; and states that changed their shape."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from oncelog.flow import Context, Flow, Stopped, Topic, Upgrade, cleanup, json_of, text
from oncelog.flow.messages import Outputs, Records, Unworkable
from oncelog.flow.operations.dedup import Ids
from oncelog.flow.part_running import PartWork
from oncelog.flow.topics import Sent
from oncelog.slots import Place


@dataclass(frozen=True)
class Paid:
    id: str
    amount: int


messy = Topic("messy", text, json_of(Paid))
pristine = Topic("pristine", text, json_of(Paid), partitions=2)


def paid(id: str, at_ms: int = 0, source: str = "") -> Sent:
    return messy.sent("anna", Paid(id, 1), at_ms, [("oncelog.source", source.encode())] if source else ())


def ids_of(flow: Flow, sent: list[Sent]) -> str:
    return "".join(each.id for _, each in flow.simulate(sent, crashes=True)[pristine])


def by_id(most: int = 1_000_000, keep_ms: int | None = None) -> Flow:
    return cleanup(messy, pristine, id=lambda each: each.id, most=most, keep_ms=keep_ms)


def test_an_id_that_came_before_is_left_out() -> None:
    assert ids_of(by_id(), [paid(id) for id in "abacbbd"]) == "abcd"


def test_no_more_ids_are_kept_than_was_said_and_the_oldest_go_first() -> None:
    sent = [paid(id, at) for at, id in enumerate("abc")]
    assert ids_of(by_id(most=2), [*sent, paid("b", 4), paid("c", 5), paid("a", 6)]) == "abca"


def test_ids_are_kept_for_a_time_of_events() -> None:
    sent = [paid("a", 0), paid("b", 100), paid("a", 100), paid("c", 101), paid("a", 101), paid("b", 102)]
    assert ids_of(by_id(keep_ms=100), sent) == "abca"


def test_an_old_record_is_no_reason_to_forget_the_younger_ones() -> None:
    assert ids_of(by_id(keep_ms=10), [paid("a", 100), paid("b", 50), paid("a", 100)]) == "ab"


def test_what_is_kept_of_ids_has_a_bound_also_where_runs_are_made_again() -> None:
    ids, state = Ids("ids", json_of(int), 3, None), dict[bytes, bytes]()
    ids.begin(state)
    for at in range(20):
        for is_for_good in (False, True):
            ids.begin_run()
            assert ids.is_new(b"%d" % at, at)
            assert not ids.is_new(b"%d" % max(0, at - 1), at)
            if not is_for_good:
                ids.undo()
        take(state, dict(ids.changes()))
        assert len(state) == ids.known == min(at + 1, 3)
    again = Ids("ids", json_of(int), 3, None)
    again.begin(state)
    assert (again.known, again.newest_ms, sorted(again.ages)) == (3, 19, [(17, b"17"), (18, b"18"), (19, b"19")])


def take(state: dict[bytes, bytes], changes: Mapping[bytes, bytes | None]) -> None:
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


@pytest.mark.parametrize(("most", "keep_ms"), [(0, None), (1, -1)])
def test_what_keeps_nothing_is_refused(most: int, keep_ms: int | None) -> None:
    with pytest.raises(ValueError, match="expected a whole number of at least"):
        by_id(most=most, keep_ms=keep_ms)


# --- by offsets


def test_what_a_copier_wrote_twice_is_left_out_by_the_offsets_it_wrote() -> None:
    order = [("x", 0), ("y", 5), ("x", 1), ("x", 0), ("x", 1), ("y", 5), ("x", 2), ("y", 7)]
    sent = [paid(f"{source}{at} ", source=f"{source}/{at}") for source, at in order]
    assert ids_of(cleanup(messy, pristine), sent) == "x0 y5 x1 x2 y7 "


def test_a_function_may_say_where_a_record_comes_from() -> None:
    def source(each: Paid, at: Context[str]) -> tuple[str, int]:
        return at.key, int(each.id)

    flow = Flow("f", version="1")
    flow.read(messy).dedup_offsets("sources", source).write(pristine)
    assert ids_of(flow, [paid(id) for id in "0102132"]) == "0123"


def test_a_record_that_says_no_source_stops_it() -> None:
    with pytest.raises(Stopped, match=r"it has no header oncelog.source: say where it comes from"):
        cleanup(messy, pristine).simulate([paid("a")])


# --- states that changed their shape


@dataclass(frozen=True)
class Cents:
    cents: int = 0


@dataclass(frozen=True)
class Money:
    amount: int = 0
    currency: str = "EUR"


@dataclass(frozen=True)
class MoreMoney:
    amount: int = 0
    currency: str = "EUR"
    payments: int = 0


def add(money: Money, each: Paid, at: Context[str]) -> tuple[Money | None, list[Money]]:
    money = Money(money.amount + each.amount, money.currency)
    return (money if each.amount else None), [money]


def add_more(money: MoreMoney, each: Paid, at: Context[str]) -> tuple[MoreMoney, list[MoreMoney]]:
    money = MoreMoney(money.amount + each.amount, money.currency, money.payments + 1)
    return money, [money]


def run(flow: Flow, state: dict[bytes, bytes], amount: int) -> list[bytes | None]:
    """One record of anna's in a life of its own: what is written."""
    (part,) = flow.program.parts
    work = PartWork(part, 0)
    work.begin(state, [-1])
    stepped = work.run(0, Records([0], [b"anna"], [json_of(Paid).encode(Paid("", amount))], [0]), 1)
    take(state, stepped.changes)
    outputs: dict[Place, Outputs] = dict(stepped.outputs)
    return [value for each in outputs.values() for value in each.values]


def test_new_fields_with_defaults_need_nothing() -> None:
    before, after = Flow("f", version="1"), Flow("f", version="2")
    before.read(messy).step("money", Money, add).write(Topic("out", text, json_of(Money)))
    after.read(messy).step("money", MoreMoney, add_more).write(Topic("out", text, json_of(MoreMoney)))
    state = dict[bytes, bytes]()
    run(before, state, 5)
    assert run(after, state, 2) == [b'{"amount":7,"currency":"EUR","payments":1}']
    assert list(state) == [b"money\0anna"]


def test_a_state_of_another_shape_is_upgraded_when_its_key_comes_and_is_gone_under_its_old_name() -> None:
    flow = Flow("f", version="2")
    upgrade = Upgrade("cents", Cents, lambda old: Money(old.cents // 100))
    flow.read(messy).step("money", Money, add, upgrade=upgrade).write(Topic("out", text, json_of(Money)))
    state = {b"cents\0anna": b'{"cents":500}', b"cents\0bert": b'{"cents":700}'}
    assert run(flow, state, 2) == [b'{"amount":7,"currency":"EUR"}']
    assert state == {b"money\0anna": b'{"amount":7,"currency":"EUR"}', b"cents\0bert": b'{"cents":700}'}
    assert run(flow, state, 0) == [b'{"amount":7,"currency":"EUR"}']
    assert list(state) == [b"cents\0bert"]
    assert run(flow, state, 1) == [b'{"amount":1,"currency":"EUR"}'], "what went does not come back from the old name"


def test_a_state_of_which_its_type_knows_no_field_is_not_read_as_an_empty_one() -> None:
    flow = Flow("f", version="2")
    flow.read(messy).step("money", Money, add).write(Topic("out", text, json_of(Money)))
    with pytest.raises(Unworkable, match=r"has the fields cents, of which .* give the step another name"):
        run(flow, {b"money\0anna": b'{"cents":500}'}, 2)
    assert run(flow, {b"money\0anna": b"{}"}, 2) == [b'{"amount":2,"currency":"EUR"}'], "all of it are defaults"


def test_a_state_that_goes_with_its_first_record_goes_under_its_old_name_too() -> None:
    flow = Flow("f", version="2")
    upgrade = Upgrade("cents", Cents, lambda old: Money(old.cents // 100))
    flow.read(messy).step("money", Money, add, upgrade=upgrade).write(Topic("out", text, json_of(Money)))
    state = {b"cents\0anna": b'{"cents":500}'}
    run(flow, state, 0)
    assert state == {}
