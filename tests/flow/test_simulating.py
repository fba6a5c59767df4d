"""`flow.simulate`: what breaks the promise is found and told, what does not is left alone, wherever holders stop."""

from dataclasses import dataclass, field, replace

import pytest

from oncelog.flow import Context, Flow, Stopped, Topic, Window, json_of, one_of, text
from oncelog.flow.simulating import Simulated
from oncelog.flow.simulation.world import World
from oncelog.flow.topics import Sent
from tests.depth import deeper, scaled
from tests.flow.mutants import MUTANTS, Mutant

NOON_MS = 1_700_000_000_000
SEEDS = range(scaled(3))


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Payment:
    customer: str
    amount: int


@dataclass(frozen=True)
class Owed:
    amount: int = 0


orders = Topic("orders", text, json_of(Order))
payments = Topic("payments", text, json_of(Payment))
ledger = Topic("ledger", text, one_of(Order, Payment), partitions=2)
ordered = Topic("ordered", text, json_of(Order), partitions=2)
sums_of_all = Topic("sums-of-all", text, json_of(Owed))
balances = Topic("balances", text, json_of(Owed), partitions=2)
sums = Topic("sums", text, json_of(Window[Owed]))

ORDERS = ("anna", 5, 1), ("bert", 2, 2), ("anna", 3, 30)
PAYMENTS = ("anna", 5, 10), ("bert", 1, 40)
SENT = [orders.sent(name, Order(name, amount), at) for name, amount, at in ORDERS]
SENT += [payments.sent(name, Payment(name, amount), at) for name, amount, at in PAYMENTS]


def book(owed: Owed, event: Order | Payment, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
    amount = owed.amount + (event.amount if isinstance(event, Order) else -event.amount)
    return (Owed(amount) if amount else None), [Owed(amount)]


def merging() -> Flow:
    flow = Flow("f", version="1")
    both = flow.read(orders).merge("all", flow.read(payments))
    both.through(ledger, key=lambda event: event.customer).step("owed", Owed, book).write(balances)
    return flow


def summing() -> Flow:
    flow = Flow("f", version="1")
    booked = flow.read(orders).through(ordered, key=lambda order: order.customer)
    add = lambda owed, event: Owed(owed.amount + event.amount)  # noqa: E731
    booked.window("sums", Owed, add, size_ms=10).write(sums)
    return flow


def told(flow: Flow, sent: list[Sent], **how: object) -> list[str]:
    with pytest.raises(Stopped) as stopped:
        flow.simulate(sent, **how)  # type: ignore[arg-type]
    return str(stopped.value).splitlines()


# --- what holds


@deeper
def test_whatever_happens_stages_come_to_what_they_read() -> None:
    done = merging().simulate(SENT, crashes="everywhere", seeds=SEEDS)
    assert done.crashes > 150
    assert sorted(customer for customer, _ in done[ledger]) == ["anna", "anna", "anna", "bert", "bert"]


@deeper
def test_windows_and_the_time_of_others_too() -> None:
    done = summing().simulate(SENT[:3], 100, crashes="everywhere", seeds=SEEDS)
    windows = [(key, window.start_ms, window.state.amount) for key, window in done[sums]]
    assert sorted(windows) == [("anna", 0, 5), ("anna", 30, 3), ("bert", 0, 2)]


def test_without_an_end_no_time_passes_but_that_of_records() -> None:
    flow = Flow("f", version="1")
    flow.read(orders).window("sums", Owed, lambda owed, order: Owed(owed.amount + order.amount), size_ms=10).write(sums)
    windows = [(window.start_ms, window.state.amount) for _, window in flow.simulate(SENT[:3])[sums]]
    assert windows == [(0, 5), (0, 2)]
    assert len(flow.simulate(SENT[:3], 40)[sums]) == 3


def test_one_simulation_is_as_the_other() -> None:
    first, second = (merging().simulate(SENT, crashes="everywhere", seeds=[7]) for _ in range(2))
    assert first.crashes == second.crashes
    assert first[balances] == second[balances]


def test_a_flow_without_input_comes_to_its_end() -> None:
    assert merging().simulate([], crashes="everywhere", seeds=[1])[balances] == []


def test_what_is_written_in_a_part_that_was_named_later_is_read() -> None:
    flow = Flow("f", version="1")
    flow.read(balances, name="behind").write(replace(balances, name="copied"))
    flow.read(orders).map(lambda order: Owed(order.amount)).write(balances)
    assert len(flow.simulate(SENT[:3])[replace(balances, name="copied")]) == 3


# --- what does not


def test_state_beside_the_state_is_found_and_told_with_the_least_that_shows_it() -> None:
    @dataclass
    class Cached:
        amount: int = 0
        calls: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.calls = []  # is not what it was encoded from

    def counts(owed: Cached, order: Order, at: Context[str]) -> tuple[Cached | None, list[Owed]]:
        owed.calls.append(1)
        return owed, [Owed(len(owed.calls))]

    flow = Flow("f", version="1")
    flow.read(orders).step("owed", Cached, counts).write(balances)
    lines = told(flow, [orders.sent("anna", Order("anna", at), at) for at in range(9)], crashes=True)
    assert lines[0].startswith("f, stage orders, cell 0")
    assert sum("orders: b'anna'" in line for line in lines) < 9
    assert any("commit 1: input read up to" in line for line in lines)
    assert any("IS KILLED" in line for line in lines)


def test_a_function_with_a_memory_of_its_own_is_found() -> None:
    calls: list[int] = []

    def counts(owed: Owed, order: Order, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
        calls.append(1)
        return owed, [Owed(len(calls))]

    flow = Flow("f", version="1")
    flow.read(orders).step("owed", Owed, counts).write(balances)
    assert "slot 0 holds anna" in told(flow, SENT[:1], crashes=True)[0]


SEEN = {"a commit before the acknowledgements", "the epoch of the outputs raised"}


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.what in SEEN], ids=str)
def test_a_cell_that_breaks_a_rule_is_found(mutant: Mutant) -> None:
    with mutant.applied():
        assert told(merging(), SENT, crashes=True)[0].startswith("f, stage all, cell 0")


def test_cells_that_write_under_one_producer_id_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "new_pids", lambda world, how_many: range(1 << 32, (1 << 32) + how_many))
    flow = Flow("f", version="1")
    flow.read(ledger).map(lambda event: Owed(event.amount)).write(balances)
    sent = [ledger.sent(name, Order(name, 1)) for name in ("anna", "bert", "carl", "dora")]
    assert {balances.partition_of(each.key or b"") for each in sent} == {0, 1}
    flow.simulate(sent)  # each writes in a partition of its own
    flow = Flow("f", version="1")
    flow.read(ledger).map(lambda event: Owed(event.amount)).through(sums_of_all, key=lambda _: "all").write(balances)
    assert told(flow, sent, crashes=True)[0].startswith("f, stage ledger, cell 1")


# --- misuse


def sent_to(topic: Topic[str, Order], at_ms: int = 0) -> list[Sent]:
    return [topic.sent("anna", Order("anna", 1), at_ms)]


def test_records_for_others_are_refused() -> None:
    other = Topic("others", text, json_of(Order))
    with pytest.raises(
        ValueError, match="others is sent to, and flow f does not read it: it reads ledger, orders, pay"
    ):
        merging().simulate(sent_to(other))


def test_other_partitions_are_refused() -> None:
    with pytest.raises(
        ValueError, match="orders is sent to as a topic of 3 partitions, and flow f reads it as one of 1"
    ):
        merging().simulate(sent_to(replace(orders, partitions=3)))


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(TypeError, match="no record that was sent"):
        merging().simulate([Order("anna", 1)])  # type: ignore[list-item]


def test_times_before_1970_are_refused() -> None:
    with pytest.raises(ValueError, match="at -1: times are milliseconds since 1970"):
        merging().simulate(sent_to(orders, -1))


def test_a_topic_of_no_part_is_no_result() -> None:
    done: Simulated = merging().simulate([])
    with pytest.raises(KeyError, match="others is no topic of this flow, which has balances, ledger, orders, payments"):
        done[Topic("others", text, text)]


def test_a_misspelt_kind_of_crash_is_refused() -> None:
    with pytest.raises(ValueError, match='False, True or "everywhere" was expected'):
        merging().simulate([], crashes="nowhere")  # type: ignore[arg-type]


def test_a_circle_is_refused() -> None:
    flow = Flow("f", version="1")
    flow.read(balances).write(replace(balances, name="there"))
    flow.read(replace(balances, name="there")).write(balances)
    with pytest.raises(ValueError, match="balances, there read what they write, in a circle"):
        flow.simulate([])


def test_words_of_an_exception_that_are_no_text_are_told_as_they_can_be() -> None:
    """Half of a pair of surrogates, as Python's json reads them: no record may have it."""

    def refuse(order: Order) -> Order:
        raise ValueError("no \ud800")

    flow = Flow("f", version="1")
    flow.read(orders).map(refuse).write(ordered)
    assert r"ValueError: no \ud800" in told(flow, sent_to(orders))[0]
