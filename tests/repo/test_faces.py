"""The two faces of a client offer the same; where they differ, that is decided and written down."""

import inspect
from typing import Any

from oncelog.client import AsyncProducer, Producer
from tests.repo import faces


def test_the_consumer_is_made_from_its_asyncio_face() -> None:
    made = faces.made_from(faces.SOURCE.read_text(encoding="utf-8"))
    assert made == faces.MADE.read_text(encoding="utf-8"), "run `python -m tests.repo.faces`"


# What a producer offers on one face alone; the rest is the same: parameters with their types and defaults, what is
# returned, and the words that say what it does.
IN_A_THREAD_ALONE = {"poll"}
ON_A_LOOP_ALONE = {"start", "produce_and_wait"}
OTHER_PARAMETERS = {
    "produce": {"on_delivery", "callback"},
    "send": {"data", "on_delivery", "value", "arguments", "more"},
    "flush": {"timeout"},
    "purge": {"blocking"},
    "list_topics": {"timeout"},
}
OTHER_RESULTS = {"produce", "send", "send_batches", "flush", "close"}
OTHER_WORDS = {"produce", "send", "send_batches", "flush", "purge", "close"}


def _offered(face: type) -> dict[str, Any]:
    found = {name: each for base in reversed(face.__mro__[:-1]) for name, each in vars(base).items()}
    return {name: each for name, each in found.items() if not name.startswith("_")}


def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(getattr(function, "fget", function))


def _parameters(function: Any) -> set[tuple[str, object, str, str]]:
    given = _signature(function).parameters.values()
    return {(each.name, each.kind, repr(each.default), str(each.annotation)) for each in given}


def test_the_producers_faces_offer_the_same() -> None:
    in_a_thread, on_a_loop = _offered(Producer), _offered(AsyncProducer)
    assert in_a_thread.keys() - on_a_loop.keys() == IN_A_THREAD_ALONE
    assert on_a_loop.keys() - in_a_thread.keys() == ON_A_LOOP_ALONE
    both = in_a_thread.keys() & on_a_loop.keys()
    for name in both:
        other = {each[0] for each in _parameters(in_a_thread[name]) ^ _parameters(on_a_loop[name])}
        assert other == OTHER_PARAMETERS.get(name, set()), name
    results = {
        name: [str(_signature(face[name]).return_annotation) for face in (in_a_thread, on_a_loop)] for name in both
    }
    assert {name for name, (one, other) in results.items() if one != other} == OTHER_RESULTS
    words = {name: [inspect.getdoc(face[name]) for face in (in_a_thread, on_a_loop)] for name in both}
    assert {name for name, (one, other) in words.items() if one != other} == OTHER_WORDS
    assert all(one and other for one, other in words.values()), "what one face says, the other says too"


def test_both_faces_of_a_producer_begin_with_the_same() -> None:
    assert _parameters(Producer.__init__) == _parameters(AsyncProducer.__init__)
    assert inspect.getdoc(Producer.__init__) == inspect.getdoc(AsyncProducer.__init__)
