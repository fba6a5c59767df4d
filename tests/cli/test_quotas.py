"""`oncelog quotas`: set, listed, removed, and what cannot be meant."""

from collections.abc import Iterator

import pytest

from oncelog.embedded import Server
from tests.cli.running import Oncelog


@pytest.fixture
def oncelog() -> Iterator[Oncelog]:
    with Server() as server:
        yield Oncelog(server.bootstrap_servers)


def test_quotas_are_set_listed_and_removed(oncelog: Oncelog) -> None:
    oncelog("quotas set", "-u", "alice", "producer_byte_rate=1048576", "request_percentage=12.5")
    oncelog("quotas set", "-u", "<default>", "--client", "app", "consumer_byte_rate=2000")
    oncelog("quotas set", "-i", "10.0.0.7", "connection_creation_rate=5")
    assert oncelog("quotas").lines == [
        "USER       CLIENT ID  IP        QUOTA                     VALUE",
        "<default>  app        -         consumer_byte_rate        2000",
        "-          -          10.0.0.7  connection_creation_rate  5",
        "alice      -          -         producer_byte_rate        1048576",
        "alice      -          -         request_percentage        12.5",
    ]
    oncelog("quotas remove", "-u", "alice", "producer_byte_rate")
    assert oncelog("quotas list", "-u", "alice", "-J").json == [
        {"user": "alice", "client_id": None, "ip": None, "quota": "request_percentage", "value": 12.5}
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("quotas set", "producer_byte_rate=1"), "whose? -u names a user"),
        (("quotas set", "-u", "a", "producer_byte_rate=much"), "a number is expected"),
        (("quotas set", "-u", "a", "producer_byte_rate"), "NAME=VALUE"),
        (("quotas set", "-u", "a", "speed=1"), "Invalid configuration key speed"),
        (("quotas set", "-u", "a", "producer_byte_rate=0"), "must be greater than 0"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(oncelog: Oncelog, words: tuple[str, ...], told: str) -> None:
    assert told in oncelog.run(*words).refusal
