"""The experiment on a cluster of its own, small."""

from pathlib import Path

import pytest

from oncelog.chaos.experiment import run
from oncelog.chaos.outcome import Options, Replicas, Verdict
from oncelog.chaos.plan import OF_BROKERS, Target
from oncelog.chaos.report import as_json, lines
from tests.chaos.test_page import outcome_of

MESSAGES = 6_000


@pytest.mark.parametrize(
    "target",
    [Target.LEADER, *(pytest.param(each, marks=pytest.mark.thorough) for each in sorted(OF_BROKERS - {Target.LEADER}))],
)
def test_whatever_happens_to_brokers_each_message_stands_there_once_and_everywhere(
    tmp_path: Path, target: Target
) -> None:
    options = Options(messages=MESSAGES, rate=1_000, every=1_500, partitions=2, brokers=3, targets=frozenset({target}))
    found = run(options, tmp_path)
    assert found.verdict is Verdict.EXACT, lines(found)
    assert found.result.all.received == MESSAGES
    assert found.replicas == Replicas(MESSAGES, ())
    assert all("in sync after" in each.words for each in found.happened)
    assert found.happened[0].gap_s


@pytest.mark.thorough
def test_a_producer_that_is_killed_goes_on_from_what_it_saved_while_leaders_are_killed(tmp_path: Path) -> None:
    """The brokers that it goes on at know of it by what they have copied."""
    targets = frozenset({Target.LEADER, Target.PRODUCER})
    options = Options(messages=10_000, rate=1_000, every=1_500, partitions=2, brokers=3, targets=targets)
    found = run(options, tmp_path)
    assert found.verdict is Verdict.EXACT, lines(found)
    assert found.result.all.received == 10_000
    assert found.replicas is not None
    assert found.replicas.damage == ()  # its fences are there besides
    assert {each.target for each in found.happened} == targets


def test_brokers_that_differ_are_not_exact() -> None:
    found = outcome_of(replicas=Replicas(900, ("chaos-0 of brokers 1, 2: other records from offset 900 on",)))
    assert found.verdict is Verdict.NOT_EXACT
    said = lines(found)
    assert "  chaos-0 of brokers 1, 2: other records from offset 900 on" in said
    assert said[-1] == "not exact: 1 damaged places at brokers"
    assert as_json(found)["replicas"]["compared"] == 900
