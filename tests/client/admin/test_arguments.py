"""What an admin refuses before anything is sent: no server is there, so whatever were sent would time out."""

import gc
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka.admin
import pytest

from oncelog.client.admin import Admin, AlterConfig, ConfigResource, ResourceType
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.types import NewTopic, TopicPartition
from oncelog.embedded import Server


@pytest.fixture
def admin() -> Iterator[Admin]:
    with Admin({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        yield admin


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.create_topics("a"),
        lambda admin: admin.create_topics(["a"]),
        lambda admin: admin.delete_topics("a"),
        lambda admin: admin.delete_topics([1]),
        lambda admin: admin.list_topics(7),
        lambda admin: admin.describe_configs(["a"]),
        lambda admin: admin.list_consumer_group_offsets(["g"]),
        lambda admin: admin.delete_topics(["a"], request_timeout="1"),
    ],
)
def test_a_wrong_type_is_a_type_error_that_names_what_is_wanted(admin: Admin, ask: Callable[[Admin], object]) -> None:
    with pytest.raises(TypeError, match=r"is a str|list of|number of seconds"):
        ask(admin)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda admin: admin.create_topics([]), "new_topics is empty"),
        (lambda admin: admin.delete_topics(["a", "a"]), "topics names something twice"),
        (lambda admin: admin.delete_topics([""]), "empty name"),
        (lambda admin: admin.delete_records([TopicPartition("a", 0, 1), TopicPartition("a", 0, 2)]), "twice"),
        (lambda admin: admin.describe_consumer_groups([]), "groups is empty"),
    ],
)
def test_what_cannot_be_meant_is_an_invalid_argument(admin: Admin, ask: Callable[[Admin], object], words: str) -> None:
    with pytest.raises(KafkaException, match=words) as refused:
        ask(admin)
    assert refused.value.error == KafkaError._INVALID_ARG


def test_where_nobody_listens_every_future_says_so_in_time(admin: Admin) -> None:
    futures = admin.create_topics([NewTopic("a"), NewTopic("b")], request_timeout=0.2)
    for future in futures.values():
        failure = future.exception(timeout=30)
        assert isinstance(failure, KafkaException)
        assert failure.error in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.2)


def test_a_closed_admin_is_told_and_closing_twice_is_nothing() -> None:
    admin = Admin({"bootstrap.servers": "127.0.0.1:1"})
    waiting = admin.delete_topics(["a"], request_timeout=60)["a"]
    admin.close()
    admin.close()
    assert isinstance(waiting.exception(timeout=10), KafkaException)
    with pytest.raises(KafkaException, match="closed"):
        admin.delete_topics(["a"])
    with pytest.raises(KafkaException, match="closed"):
        admin.list_consumer_groups()


def test_a_resource_is_the_same_whatever_is_to_change_in_it() -> None:
    changed = ConfigResource(ResourceType.TOPIC, "a", [AlterConfig("retention.ms", "1")])
    assert {ConfigResource(ResourceType.TOPIC, "a"): 1}[changed] == 1


def test_what_no_request_can_carry_is_refused() -> None:
    text = "\ud800"
    with Server() as server, Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        asked = (
            lambda: admin.list_topics(text, timeout=20),
            admin.create_topics([NewTopic("a", num_partitions=2**31)])["a"].result,
            admin.delete_topics([text])[text].result,
            admin.describe_consumer_groups([text])[text].result,
        )
        for ask in asked:
            with pytest.raises(KafkaException) as refused:
                ask()
            assert refused.value.error.code() == KafkaError._INVALID_ARG


def test_a_client_id_that_is_no_text_is_refused() -> None:
    with Server() as server, Admin({"bootstrap.servers": server.bootstrap_servers, "client.id": "\udcff"}) as admin:
        with pytest.raises(KafkaException) as refused:
            admin.list_topics(timeout=20)
        assert refused.value.error.code() == KafkaError._INVALID_ARG


def test_an_admin_that_nobody_refers_to_goes_away_with_its_thread() -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "oncelog-admin"}

    before = threads()
    admin = Admin({"bootstrap.servers": "127.0.0.1:1"})
    gone = weakref.ref(admin)
    del admin
    gc.collect()
    assert gone() is None
    assert threads() <= before


def test_a_question_that_waits_when_the_admin_is_closed_fails_as_one_of_a_closed_admin() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        admin = Admin({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        future = admin.describe_cluster()
        with silent.accept()[0]:
            admin.close()
            failure = future.exception(20)
    assert isinstance(failure, KafkaException) and failure.error.code() == KafkaError._DESTROY


@pytest.mark.parametrize("given", ["broker", "BROKER", 4, ResourceType.BROKER])
def test_the_type_of_a_resource_is_said_as_to_confluent_kafka(given: Any) -> None:
    theirs = confluent_kafka.admin.ConfigResource(given if type(given) is not ResourceType else int(given), "1")
    ours = ConfigResource(given, "1")
    assert ours.type is ResourceType.BROKER and int(ours.type) == theirs.restype.value
    assert ours == ConfigResource(ResourceType.BROKER, "1")


@pytest.mark.parametrize("given", ["brocker", 77, None, 1.5])
def test_another_type_of_a_resource_is_refused_with_those_that_are_known(given: Any) -> None:
    with pytest.raises(
        KafkaException, match=r"ResourceType\.TOPIC, \.BROKER or \.GROUP, or 'topic', 'broker' or 'group', not"
    ) as refused:
        ConfigResource(given, "1")
    assert refused.value.error == KafkaError._INVALID_ARG
    with pytest.raises(TypeError, match="the name of a ConfigResource is a str, not int"):
        ConfigResource("broker", 1)  # type: ignore[arg-type]
