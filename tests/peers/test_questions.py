"""Both servers are asked the same questions; only what `differences.py` lists may differ.

The answers are compared at run time, so that Kafka itself, and not somebody's memory of it, says what is right.
"""

import itertools

import pytest

from tests.peers.differences import DIFFERENCES, PAGE, page_with, text
from tests.peers.questions import QUESTIONS
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

_numbers = itertools.count()


def answer(server: ServerProcess, name: str) -> object:
    with RawConnection(server.port) as connection:
        return QUESTIONS[name](connection, f"q{next(_numbers)}-asked")


@pytest.mark.parametrize("name", QUESTIONS, ids=lambda name: name.replace(" ", "-"))
def test_the_answer_is_kafkas(name: str, kafka: ServerProcess, oncelog_server: ServerProcess) -> None:
    kafkas, ours = answer(kafka, name), answer(oncelog_server, name)
    if name in DIFFERENCES:
        assert (kafkas, ours) == (DIFFERENCES[name].kafka, DIFFERENCES[name].oncelog), "the list of differences is old"
    else:
        assert ours == kafkas


def test_every_listed_difference_belongs_to_a_question() -> None:
    assert DIFFERENCES.keys() <= QUESTIONS.keys()


def test_the_page_on_compatibility_repeats_the_list() -> None:
    assert PAGE.read_text() == page_with(text()), "run: python -m tests.peers.differences"
