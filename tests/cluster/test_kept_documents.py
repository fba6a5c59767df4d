"""Users, rights and quotas stand where brokers agree: every broker sees each change, and none undoes another's."""

import asyncio
from pathlib import Path

import pytest

import oncelog
from oncelog.cluster.file import UnfitFolder
from oncelog.cluster.tree import Put
from oncelog.security.documents import MOST_BYTES, Document, Kind
from oncelog.server.errors import ErrorCode, KafkaError
from tests.cluster.brokers import ALL, Brokers


async def change(cluster: Brokers, node: int, name: str, value: object = 1) -> None:
    broker = cluster.brokers[node].broker
    await broker.turns.run(
        broker.topics.changing_document(Kind.USERS, lambda document: {**document, name: value}, broker.clock.now())
    )


def users(cluster: Brokers, node: int) -> Document:
    return cluster.brokers[node].broker.topics.document(Kind.USERS)


async def test_changes_of_all_brokers_at_once_are_all_kept_and_seen_by_all(cluster: Brokers) -> None:
    names = {f"{node}-{number}": node for node in ALL for number in range(12)}
    await asyncio.gather(*(change(cluster, node, name) for name, node in names.items()))
    await cluster.until(lambda: all(users(cluster, node) == dict.fromkeys(names, 1) for node in ALL))


async def test_a_broker_that_was_away_sees_them_when_it_is_back(cluster: Brokers) -> None:
    await cluster.stop(3)
    await change(cluster, 1, "anna")
    await cluster.start(3)
    assert users(cluster, 3) == {"anna": 1}


async def test_what_is_too_much_is_refused_and_changes_nothing(cluster: Brokers) -> None:
    await change(cluster, 1, "anna")
    with pytest.raises(KafkaError, match="all users together may take") as refusal:
        await change(cluster, 1, "bert", "x" * MOST_BYTES)
    assert refusal.value.code is ErrorCode.policy_violation
    assert users(cluster, 1) == {"anna": 1}


async def test_a_damaged_document_is_passed_over_with_words_and_stops_a_start(
    cluster: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    await change(cluster, 1, "anna")
    node = await cluster.sessions[1].get("/users")
    assert node is not None
    await cluster.sessions[1].change(Put("/users", b"[]", node.version))
    await cluster.until(lambda: caplog.text.count("/users is passed over: users: no JSON object") == len(ALL))
    assert [users(cluster, node) for node in ALL] == [{"anna": 1}] * 3
    await cluster.stop(3)
    with pytest.raises(UnfitFolder, match="Restore /users where they agree"):
        await cluster.start(3)


def kept(folder: Path, name: str) -> Document:
    """One change more, by a server that stands alone, and what there is then."""
    with oncelog.Server(data_dir=str(folder)) as server:
        topics, now = server.broker.topics, server.broker.clock.now()

        def changing() -> object:
            return server.broker.turns.run(
                topics.changing_document(Kind.ACLS, lambda document: {**document, name: {"of": name}}, now)
            )

        server.call(changing)
        return topics.document(Kind.ACLS)


def test_a_server_that_stands_alone_keeps_them_in_its_folder_and_its_workers_find_them(tmp_path: Path) -> None:
    assert kept(tmp_path, "one") == {"one": {"of": "one"}}
    assert kept(tmp_path, "two") == {"one": {"of": "one"}, "two": {"of": "two"}}
    with oncelog.Server(data_dir=str(tmp_path), workers=2):
        pass
    assert list(kept(tmp_path, "three")) == ["one", "two", "three"]


def test_what_is_refused_leaves_everything_as_it_was(tmp_path: Path) -> None:
    with oncelog.Server(data_dir=str(tmp_path)) as server:
        topics, now = server.broker.topics, server.broker.clock.now()

        def refuse(document: Document) -> Document:
            raise KafkaError(ErrorCode.invalid_request, "no")

        for asked, code in ((refuse, "invalid_request"), (lambda _: {"a": "x" * MOST_BYTES}, "policy_violation")):
            with pytest.raises(KafkaError) as refusal:
                server.call(
                    lambda asked=asked: server.broker.turns.run(topics.changing_document(Kind.QUOTAS, asked, now))
                )
            assert refusal.value.code.name == code
        assert topics.document(Kind.QUOTAS) == {}
