"""The two faces of a client offer the same; where they differ, that is decided and written down."""

import inspect
from typing import Any

from oncelog.client import AsyncProducer, Producer
from tests.repo import faces


def test_the_consumer_is_made_from_its_asyncio_face() -> None:
    made = faces.made_from(faces.SOURCE.read_text(encoding="utf-8"))
    assert made == faces.MADE.read_text(encoding="utf-8"), "run `python -m tests.repo.faces`"


# What a producer offers on one face alone; the rest is the same, parameters and defaults included.
IN_A_THREAD_ALONE = {"poll"}
ON_A_LOOP_ALONE = {"start", "produce_and_wait"}
OTHER_PARAMETERS = {
    "produce": {"on_delivery", "callback"},
    "send": {"data", "on_delivery", "value", "arguments", "more"},
    "flush": {"timeout"},
    "purge": {"blocking"},
    "list_topics": {"timeout"},
}


def _offered(face: type) -> dict[str, Any]:
    found = {name: each for base in reversed(face.__mro__[:-1]) for name, each in vars(base).items()}
    return {name: each for name, each in found.items() if not name.startswith("_")}


def _parameters(function: Any) -> list[tuple[str, object, object]]:
    given = inspect.signature(getattr(function, "fget", function)).parameters.values()
    return [(each.name, each.kind, each.default) for each in given]


def test_the_producers_faces_offer_the_same() -> None:
    in_a_thread, on_a_loop = _offered(Producer), _offered(AsyncProducer)
    assert in_a_thread.keys() - on_a_loop.keys() == IN_A_THREAD_ALONE
    assert on_a_loop.keys() - in_a_thread.keys() == ON_A_LOOP_ALONE
    for name in in_a_thread.keys() & on_a_loop.keys():
        other = {each[0] for each in {*_parameters(in_a_thread[name])} ^ {*_parameters(on_a_loop[name])}}
        assert other == OTHER_PARAMETERS.get(name, set()), name
