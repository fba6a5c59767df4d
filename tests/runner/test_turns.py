"""How many turns a loop makes in one pass."""

from collections.abc import Callable

import pytest

from oncelog.runner.turns import PASS_S, Turns


class Loop:
    """Its passes are made by the test, and its clock moves with the turns."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, lambda: self.now_s)
        self.made: list[str] = []

    def add(self, name: str, takes_s: float = 0.0, then: str = "", fails: bool = False) -> None:
        def turn() -> None:
            self.made.append(name)
            self.now_s += takes_s
            if then:
                self.add(then)
            if fails:
                raise ValueError(name)

        self.turns.add(turn)

    def next_pass(self) -> str:
        (due,) = self.soon
        self.soon.clear()
        self.made.clear()
        due()
        return " ".join(self.made)


def test_a_pass_makes_what_its_time_is_for_and_the_others_come_in_the_next_ones() -> None:
    loop = Loop()
    for name in "abcde":
        loop.add(name, takes_s=0.6 * PASS_S)
    assert [loop.next_pass() for _ in range(3)] == ["a b", "c d", "e"]
    assert loop.soon == []


def test_who_asks_for_another_turn_lets_the_loop_look_first() -> None:
    loop = Loop()
    loop.add("a", then="again")
    loop.add("b")
    assert [loop.next_pass() for _ in range(2)] == ["a b", "again"]


def test_a_turn_that_raises_keeps_none_from_the_others() -> None:
    loop = Loop()
    loop.add("a", fails=True)
    loop.add("b")
    with pytest.raises(ValueError, match="a"):
        loop.next_pass()
    assert loop.next_pass() == "b"
