"""A program that was written for confluent-kafka finds the names that it imports."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import oncelog.client as client
from oncelog.client import AsyncConsumer, AsyncProducer, Consumer, KafkaError, KafkaException, Producer

NUMBERS = (
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_STORED",
    "OFFSET_INVALID",
    "TIMESTAMP_NOT_AVAILABLE",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_the_ones_of_confluent_kafka(name: str) -> None:
    assert getattr(client, name) == getattr(confluent_kafka, name)


def test_every_public_name_is_there_and_listed() -> None:
    assert set(dir(client)) >= set(client.__all__) >= {"AdminClient", "ConsumerGroupMetadata", *NUMBERS}
    for name in client.__all__:
        assert getattr(client, name) is not None
    assert client.AdminClient is client.Admin is import_module("oncelog.client.admin").AdminClient


@pytest.mark.parametrize("name", ["oncelog.client", "oncelog.client.door"])
def test_a_type_checker_is_told_of_the_names_that_are_there_from_where_they_come(name: str) -> None:
    module = import_module(name)
    (told,) = (each for each in ast.parse(Path(str(module.__file__)).read_text()).body if isinstance(each, ast.If))
    homes = {one.name: each.module for each in told.body if isinstance(each, ast.ImportFrom) for one in each.names}
    assert homes.keys() == {*module.__all__}
    for each, home in homes.items():
        assert getattr(module, each) is getattr(import_module(str(home)), each)


@pytest.mark.parametrize("make", [Producer, Consumer, AsyncProducer, AsyncConsumer])
def test_properties_may_be_given_as_keywords_alone(make: Any) -> None:
    more = {"group.id": "g"} if make in (Consumer, AsyncConsumer) else {}
    with pytest.raises(KafkaException, match="No such configuration property"):
        make(**{"bootstrap.servers": "127.0.0.1:1", "no.such": 1})
    made = make(**{"bootstrap.servers": "127.0.0.1:1"}, **more)
    if make in (Producer, Consumer):
        made.close()


@pytest.mark.parametrize("make", [Producer, Consumer, AsyncProducer, AsyncConsumer])
def test_what_is_no_dict_is_a_type_error(make: Any) -> None:
    for wrong in (None, 5, "bootstrap.servers=here"):
        with pytest.raises(TypeError):
            make(wrong)


@pytest.mark.parametrize(
    "name",
    [
        "init_transactions",
        "begin_transaction",
        "commit_transaction",
        "abort_transaction",
        "send_offsets_to_transaction",
    ],
)
def test_transactions_are_refused_with_what_is_there_instead(name: str) -> None:
    for kind in (Producer, AsyncProducer):
        with pytest.raises(KafkaException, match="saved producer") as refusal:
            getattr(kind, name)(kind.__new__(kind), 1, timeout=2)
        assert refusal.value.error.code() == KafkaError._NOT_IMPLEMENTED
