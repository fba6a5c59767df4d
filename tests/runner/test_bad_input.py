"""What one cell cannot go on with is one sentence in the shell. The other cells go on, and nothing is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.client import AdminClient, NewTopic, Producer
from oncelog.embedded import Server
from tests.cli.running import Oncelog, Said
from tests.repo.tree import ROOT
from tests.runner.flows import Billing, everything, make_topic

HEAD = """
from dataclasses import dataclass
from oncelog.flow import Dead, Flow
from tests.runner.flows import Billing, Owed, book
billing = Billing("NAME", "SERVERS")
flow = Flow("NAME", version="VERSION")
"""
STRICT = 'orders = flow.read(billing.orders, name="orders")\n'
LENIENT = 'orders = flow.read(billing.orders, name="orders", otherwise=Dead("NAME-dead"))\n'
OTHERS = 'orders = flow.read(billing.orders, name="others")\n'
WELL = 'orders.step("owed", Owed, book).write(billing.sums)'
RAISES = """
def checked(order):
    if order.amount == 13:
        raise ValueError("no thirteen")
    return order
orders.map(checked).step("owed", Owed, book).write(billing.sums)
"""
KEEPS = """
def keep(kept, order, at):
    return "x" * order.amount, [Owed(order.amount)]
orders.step("kept", str, keep).write(billing.sums)
"""
COUNTS = """
def count(seen, order, at):
    return seen + 1, [Owed(seen + 1)]
orders.step("owed", int, count).write(billing.sums)
"""
HAS_OTHER_FIELDS = """
@dataclass(frozen=True)
class Paid:
    cents: int = 0
def pay(paid, order, at):
    return paid, []
orders.step("owed", Paid, pay).write(billing.sums)
"""

Run = Callable[..., Said]
Record = tuple[str | None, bytes]


@pytest.fixture
def billing(own_server: Server, topic: str) -> Billing:
    found = Billing(topic, own_server.bootstrap_servers)
    found.make_topics()
    make_topic(found.servers, f"{topic}-dead", 1)
    return found


@pytest.fixture
def run(billing: Billing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Code as a module, up to the end of the input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    versions: list[str] = []

    def ran(code: str, read: str = STRICT) -> Said:
        versions.append(f"{len(versions)}")
        module = "".join(letter if letter.isalnum() else "_" for letter in f"bad_{billing.name}_{versions[-1]}")
        whole = (HEAD + read + code).replace("NAME", billing.name).replace("SERVERS", billing.servers)
        (tmp_path / f"{module}.py").write_text(whole.replace("VERSION", versions[-1]))
        return Oncelog(billing.servers).run("flow run", f"{module}:flow", "--until", "end")

    return ran


def order(amount: int) -> bytes:
    return b'{"customer":"anna","amount":%d}' % amount


def send(billing: Billing, partition: int, *records: Record) -> None:
    with Producer(billing.properties) as producer:
        for key, value in records:
            producer.produce(billing.orders.name, key=key, value=value, partition=partition)
        producer.flush()


def sums(billing: Billing) -> list[int]:
    return sorted(owed.amount for _, owed in billing.written())


@pytest.mark.parametrize(
    ("bad", "code", "why", "read"),
    [
        (("anna", order(13)), RAISES, "ValueError: no thirteen (bad_", STRICT),
        (("anna", b'{"customer'), WELL, "DecodeError: Input data was truncated", LENIENT),
        pytest.param(
            *((None, order(13)), WELL, "ValueError: it has no key, and its codec is not optional()", LENIENT),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["raises", "does-not-decode", "null-key"],
)
def test_a_record_that_cannot_be_worked_on(
    billing: Billing, run: Run, bad: Record, code: str, why: str, read: str
) -> None:
    send(billing, 0, ("anna", order(1)), bad, ("anna", order(1)))
    send(billing, 1, ("bert", order(5)), ("bert", order(6)))
    said = run(code)
    title = f"{billing.name}, stage orders, cell 0: the record at offset 1 of {billing.orders.name}: "
    assert (said.code, said.refusal.startswith(title + why)) == (1, True), said
    assert said.refusal.endswith("give such records a topic of their own (`otherwise=Dead(...)`)")
    assert {5, 11} <= set(sums(billing)), "the other cell has come to its end"
    assert run(WELL, read).code == 0
    is_dead = read == LENIENT
    assert sums(billing) == ([1, 2, 5, 11] if is_dead else [1, 5, 11, 14, 15])
    assert [value for _, value in everything(billing.servers, f"{billing.name}-dead")] == [bad[1]] * is_dead


@pytest.mark.parametrize("code", [COUNTS, HAS_OTHER_FIELDS], ids=["type", "fields"])
def test_a_state_that_other_code_kept_is_no_fault_of_a_record(billing: Billing, run: Run, code: str) -> None:
    """Which would be dead for it, one after the other."""
    send(billing, 0, ("anna", order(1)))
    assert run(WELL).code == 0
    send(billing, 0, ("anna", order(2)))
    send(billing, 1, ("bert", order(5)))
    said = run(code, LENIENT)
    title = (
        f"{billing.name}, stage orders, cell 0: the record at offset 1 of {billing.orders.name}: what the step 'owed'"
    )
    assert said.refusal.startswith(f"{title} has kept for its key is not of the type of its state ("), said
    assert said.refusal.endswith("give the step another name and `upgrade=` what stands under this one")
    assert everything(billing.servers, f"{billing.name}-dead") == []
    held = Oncelog(billing.servers)("flow describe", billing.name, "-J").json["stages"][0]["cells"]
    assert [cell["inputs"][0]["next_offset"] for cell in held] == [1, 1], "the other cell has come to its end"


def test_what_does_not_fit_a_commit(billing: Billing, run: Run) -> None:
    journal = f"oncelog.flow.{billing.name}.orders"
    config = {"cleanup.policy": "compact", "max.message.bytes": "200000"}
    with AdminClient(billing.properties) as admin:
        admin.create_topics([NewTopic(journal, 2, 1, config=config)])[journal].result(30)
    send(billing, 0, ("anna", order(1)), ("anna", order(1_000_000)))
    send(billing, 1, ("bert", order(5)))
    said = run(KEEPS)
    what = (
        f"what the record at offset 1 of {billing.orders.name}-0, with the key b'anna', changes does not fit a commit"
    )
    assert f"{billing.name}, stage orders, cell 0: {what}" in said.refusal.replace("\n", " "), said
    assert f"Raise max.message.bytes of {journal}, or have the functions keep less for a key" in said.refusal
    assert sums(billing) == [1, 5]
    assert run(KEEPS.replace("* order.amount", "* min(order.amount, 9)")).code == 0
    assert sums(billing) == [1, 5, 1_000_000]


def test_what_several_cells_cannot_go_on_with_is_a_sentence_each(billing: Billing, run: Run) -> None:
    for partition in range(2):
        send(billing, partition, ("anna", b"{"))
    said = run(WELL)
    assert said.refusal.count("(`otherwise=Dead(...)`)") == 2
    assert f"(`otherwise=Dead(...)`). {billing.name}, stage orders, cell " in said.refusal


def test_an_output_that_takes_no_such_record_names_it(billing: Billing, run: Run) -> None:
    Oncelog(billing.servers)("topics alter", billing.sums.name, "-c", "max.message.bytes=1000")
    code = 'from oncelog.flow import Topic, json_of, text\norders.map(lambda order: "x" * order.amount)'
    code += ".write(Topic(billing.sums.name, text, json_of(str), partitions=2))"
    send(billing, 0, ("anna", order(5_000)))
    place = f"{billing.sums.name}-{0 if billing.sums.partition_of(b'anna') == 0 else 1}"
    said = run(code)
    assert f"{billing.name}, stage orders, cell 0: {place} answers MSG_SIZE_TOO_LARGE (" in said.refusal
    assert "the record with the key b'anna' has 5,002 bytes. Raise max.message.bytes" in said.refusal


def test_a_flow_that_does_not_fit_its_topics_is_refused_before_it_begins(billing: Billing, run: Run) -> None:
    assert run(WELL).code == 0
    assert run(WELL, OTHERS).refusal.startswith(f"the name {billing.name} belongs to another flow of this cluster")
    elsewhere = (
        "from oncelog.flow import Topic, json_of, text\nbilling.sums = Topic('NAME-{}', text, json_of(Owed), 3)\n"
    )
    said = run(elsewhere.format("dead") + WELL).refusal
    assert said.startswith(f"topic {billing.name}-dead has 1 partitions, and flow {billing.name} says 3"), said
    said = run(elsewhere.format("nowhere") + WELL).refusal
    assert f"misses topics: {billing.name}-nowhere, which it writes. Make them first, for example with" in said
