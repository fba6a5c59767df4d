"""Kafka's own Java client as the one that sends: its tool, and what is made of what it says."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog.chaos import java_sending
from oncelog.chaos.experiment import run
from oncelog.chaos.java_sending import Lines, NoKafka, Relay, kafka_libs
from oncelog.chaos.outcome import Options, Verdict
from oncelog.chaos.plan import Target
from oncelog.chaos.report import lines
from oncelog.chaos.sender_report import Reports
from oncelog.chaos.sending import Order, Teller
from oncelog.cli import main
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip

SAID = (
    b'{"timestamp":1,"name":"startup_complete"}\nDEPRECATED: an option\n'
    b'{"timestamp":2,"name":"producer_send_success","key":null,"value":"0","offset":0,"topic":"t","partition":0}\n'
    b'{"timestamp":3,"name":"producer_send_error","key":null,"value":"1","exception":"e","message":"m","topic":"t"}\n'
    b'{"timestamp":4,"name":"producer_send_success","key":null,"value":"2","offset":1,"topic":"t","partition":0}\n'
    b'{"timestamp":5,"name":"tool_data","sent":4,"acked":2,"target_throughput":-1,"avg_throughput":9.5}\n'
)


@pytest.mark.parametrize("portion", [1, 7, 1000])
def test_what_the_tool_says_becomes_reports_in_portions_of_any_size(portion: int) -> None:
    told: list[bytes] = []
    teller = Teller(told.append)
    relay, found = Relay(teller), Lines()
    for first in range(0, len(SAID), portion):
        for said in found.take(SAID[first : first + portion]):
            relay.take(said)
    teller.tell(now=True)
    (report,) = Reports().take(b"".join(told))
    assert (report.sent, report.failed, report.confirmed.tolist()) == (4, 1, [0, 2])


def test_the_jars_are_below_an_unpacked_kafka_or_where_they_are_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka-tools-9.9.jar").touch()
    assert kafka_libs(str(tmp_path)) == kafka_libs(str(tmp_path / "libs")) == tmp_path / "libs"
    for home in ("", str(tmp_path / "nothing")):
        with pytest.raises(NoKafka, match="set KAFKA_HOME to an Apache Kafka"):
            kafka_libs(home)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "set KAFKA_HOME to an Apache Kafka"),
        (("--kill", "responses,producer"), "begins at the first message again"),
        (("--kill", "responses, producer"), "begins at the first message again"),
    ],
)
def test_what_it_cannot_do_is_said(arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    done = CliRunner().invoke(main, ["chaos", "--client", "java", *arguments])
    assert done.exit_code != 0
    assert words in done.output


@pytest.fixture(scope="module")
def libs() -> Iterator[str]:
    try:
        yield str(kafka_libs(str(kafka_jars())))
    except MissingPeer as missing:
        need_or_skip(missing)


@pytest.mark.thorough
@pytest.mark.peers
def test_javas_client_is_exact_with_idempotence_and_is_not_without(tmp_path: Path, libs: str) -> None:
    options = Options(messages=30_000, rate=10_000, every=2_000, client="java", kafka_libs=libs, partitions=2)
    with_it = run(replaced(options, {Target.CONNECTIONS, Target.RESPONSES, Target.SERVER}), tmp_path / "with")
    assert with_it.verdict is Verdict.EXACT, lines(with_it)
    assert with_it.result.all.received == 30_000
    without = run(replaced(options, {Target.RESPONSES}, is_idempotent=False), tmp_path / "without")
    assert without.verdict is Verdict.NOT_EXACT
    assert without.result.all.duplicates > 0 and without.result.missing == 0


SAYS_ONE_THING = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print('{"name":"producer_send_success","value":"0"}', flush=True)
signal.pause()
"""


@pytest.mark.parametrize(("until_s", "code"), [(1.0, 0), (0.0, 3)])
def test_a_tool_that_was_told_to_end_has_not_failed(monkeypatch: pytest.MonkeyPatch, until_s: float, code: int) -> None:
    """Java ends by SIGTERM with a code of its own."""
    reports, told = Reports(), list[int]()

    def write(data: bytes) -> None:
        for report in reports.take(data):
            told.extend(report.confirmed.tolist())

    tool = SAYS_ONE_THING if until_s else "raise SystemExit(3)"
    monkeypatch.setattr(java_sending, "command", lambda order, environ: [sys.executable, "-c", tool])
    monkeypatch.setattr(java_sending, "wall_s", lambda: 2.0 if told else 0.5)
    assert java_sending.run(Order("java", "", "t", 1, 10, until_s=until_s), write) == code
    assert told == [0] * bool(until_s)


def replaced(options: Options, targets: set[Target], *, is_idempotent: bool = True) -> Options:
    return replace(options, targets=frozenset(targets), is_idempotent=is_idempotent)
