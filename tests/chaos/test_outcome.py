"""The verdict: it is exact only where something was shown."""

import numpy as np

from oncelog.chaos.audit import Audit
from oncelog.chaos.outcome import Options, Outcome, Verdict
from oncelog.chaos.plan import Target
from oncelog.chaos.report import verdict_in_words


def outcome_of(
    *, confirmed: int, failed: int = 0, seconds: float = 0.0, targets: frozenset[Target] = frozenset()
) -> Outcome:
    """Of ten messages that were sent, all of which are stored that are confirmed."""
    audit = Audit(10)
    audit.confirm(np.arange(confirmed))
    audit.take(0, np.arange(confirmed))
    options = Options(messages=10, seconds=seconds, targets=targets)
    return Outcome(options, [], [], audit.result(), failed=failed, seconds=1.0)


def test_each_message_confirmed_and_there_once_is_exact() -> None:
    assert outcome_of(confirmed=10).verdict is Verdict.EXACT
    assert outcome_of(confirmed=9, failed=1).verdict is Verdict.EXACT


def test_where_no_message_was_confirmed_nothing_was_shown() -> None:
    found = outcome_of(confirmed=0, failed=10)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert verdict_in_words(found).startswith("inconclusive: no message was confirmed")


def test_messages_of_which_the_client_says_nothing_are_not_passed_over() -> None:
    found = outcome_of(confirmed=7, failed=1)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert verdict_in_words(found).startswith("inconclusive: of 2 messages the client said neither")
    assert outcome_of(confirmed=7, seconds=60).verdict is Verdict.EXACT, "a producer may be killed at the last moment"


def test_what_was_asked_for_and_never_came_about_is_named() -> None:
    found = outcome_of(confirmed=10, targets=frozenset({Target.LEADER}))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert verdict_in_words(found).startswith("inconclusive: these faults never met work under way: leader.")
