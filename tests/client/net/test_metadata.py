"""What is known of a cluster is never undone by a broker that lags behind."""

from typing import Any
from uuid import UUID

import pytest

from oncelog.client.net.metadata import BrokerAddress, Metadata
from tests.raw.entities import make, message

ONE, TWO = UUID(int=1), UUID(int=2)


def answer(version: int = 12, **topics: dict[str, Any]) -> Any:
    response = message("metadata", version).response
    made = [{"name": name, **fields} for name, fields in topics.items()]
    brokers = [{"node_id": 1, "host": "a", "port": 1}, {"node_id": 2, "host": "b", "port": 2}]
    return make(response, {"brokers": brokers, "topics": made, "controller_id": 2} if version else {"brokers": brokers})


def led(by: int, epoch: int, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"partition_index": index, "leader_id": by, "leader_epoch": epoch, **more}


def topic(*partitions: dict[str, Any], topic_id: UUID | None = ONE, error_code: int = 0) -> dict[str, Any]:
    return {"topic_id": topic_id, "partitions": partitions, "error_code": error_code}


def test_brokers_controller_and_leaders_are_known() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5))))
    assert known.brokers[2] == BrokerAddress(2, "b", 2)
    assert (known.controller_id, known.leader("t", 0)) == (2, (2, 5))
    assert known.names[ONE] == "t"


def test_nobody_leads_what_is_not_known() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5))))
    assert known.leader("t", 1) == known.leader("u", 0) == (-1, -1)


def test_a_leader_epoch_never_goes_back() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5)))).updated(answer(t=topic(led(1, 4))))
    assert known.leader("t", 0) == (2, 5)
    assert known.updated(answer(t=topic(led(1, 6)))).leader("t", 0) == (1, 6)


def test_a_partition_without_a_leader_in_a_newer_epoch_has_none() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5)))).updated(answer(t=topic(led(-1, 5, error_code=5))))
    assert known.leader("t", 0) == (-1, 5)
    assert known.topics["t"].partitions[0].error_code == 5


def test_another_topic_under_the_same_name_begins_anew() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5)))).updated(answer(t=topic(led(1, 0), topic_id=TWO)))
    assert known.leader("t", 0) == (1, 0)
    assert (dict(known.names), known.topics["t"].topic_id) == ({TWO: "t"}, TWO)


def test_a_broker_too_old_for_leader_epochs_is_believed() -> None:
    old = Metadata().updated(answer(version=1, t={"partitions": [{"leader_id": 1}]}))
    assert old.updated(answer(version=1, t={"partitions": [{"leader_id": 2}]})).leader("t", 0) == (2, -1)


def test_a_topic_that_is_gone_has_no_partitions() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5)))).updated(answer(t=topic(error_code=3, topic_id=None)))
    assert (known.topics["t"].error_code, dict(known.topics["t"].partitions), dict(known.names)) == (3, {}, {})


def test_a_broker_that_cannot_say_for_now_does_not_undo_what_is_known() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5)))).updated(answer(t=topic(error_code=5, topic_id=None)))
    assert known.topics["t"].error_code == 5
    assert known.leader("t", 0) == (2, 5)


def test_an_answer_about_some_topics_keeps_the_others_and_one_about_all_does_not() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5))))
    assert set(known.updated(answer(u=topic(topic_id=TWO))).topics) == {"t", "u"}
    assert set(known.updated(answer(u=topic(topic_id=TWO)), is_everything=True).topics) == {"u"}


def test_leaders_that_other_answers_name_are_news_only_when_their_epoch_is_newer() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5))))
    assert known.with_leaders([("t", 0, 1, 6)]).leader("t", 0) == (1, 6)
    assert known.with_leaders([("t", 0, 1, 5), ("t", 0, -1, 9), ("t", 7, 1, 9), ("u", 0, 1, 9)]) == known


def test_a_value_never_changes() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5))))
    known.updated(answer(t=topic(led(1, 6))))
    assert known.leader("t", 0) == (2, 5)
    with pytest.raises(TypeError):
        known.topics["u"] = known.topics["t"]  # type: ignore[index]


def test_topics_can_be_forgotten() -> None:
    known = Metadata().updated(answer(t=topic(led(2, 5)), u=topic(topic_id=TWO))).without_topics(["t"])
    assert (set(known.topics), set(known.names)) == ({"u"}, {TWO})
