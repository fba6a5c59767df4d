"""Results that hang on the order of a set are found by other processes, and nothing else is."""

import pytest

from oncelog.flow import Flow, Topic, json_of, text
from oncelog.flow.simulating import Simulated
from oncelog.hash_seeds import HashDependent, check_hash_seeds

words = Topic("words", text, json_of(list[str]))
out = Topic("out", text, json_of(list[str]))
SENT = [words.sent("a", ["one", "two", "three", "four", "one"])]


def simulated() -> Simulated:
    flow = Flow("f", version="1")
    flow.read(words).map(lambda value: sorted(set(value))).write(out)
    return flow.simulate(SENT)


def by_chance() -> Simulated:
    flow = Flow("f", version="1")
    flow.read(words).map(lambda value: list(set(value))).write(out)
    return flow.simulate(SENT)


def failing() -> Simulated:
    raise RuntimeError("no such luck")


def test_what_is_sorted_is_the_same() -> None:
    check_hash_seeds(simulated)


def test_the_order_of_a_set_is_found() -> None:
    with pytest.raises(HashDependent, match=r"out has .* as record 0 with PYTHONHASHSEED=1 and 2: .* Sort the set"):
        check_hash_seeds(by_chance)


def test_what_fails_there_is_shown() -> None:
    with pytest.raises(HashDependent, match=r"(?s)PYTHONHASHSEED=1 failing of .* failed:.*no such luck"):
        check_hash_seeds(failing, timeout_s=60)


def test_only_functions_of_a_module_are_found_there() -> None:
    with pytest.raises(ValueError, match="is no function of a module"):
        check_hash_seeds(lambda: simulated())
