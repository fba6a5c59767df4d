"""Users described, made, changed and removed by Kafka's two messages, with Kafka's checks and words."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.clock import Now
from oncelog.cluster.stored_documents import change_in_folder
from oncelog.embedded import Server
from oncelog.log.work_steps import Steps
from oncelog.security.documents import Change, Kind
from oncelog.security.scram import HASHES, credential_of, hash_bytes, salted_password
from oncelog.security.users import MOST_NAME_BYTES
from oncelog.server.access import EVERY_RIGHT
from oncelog.server.errors import ErrorCode
from oncelog.server.names import METADATA_TOPIC
from tests.raw import RawConnection
from tests.waiting import until

SHA_256, SHA_512 = 1, 2
TWICE = "A user credential cannot be altered twice in the same request"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def upsertion(name: str = "ann", mechanism: int = SHA_256, **more: Any) -> dict[str, Any]:
    size_bytes = {SHA_256: 32, SHA_512: 64}.get(mechanism, 32)
    given = {"name": name, "mechanism": mechanism, "iterations": 4096, "salt": b"salt"}
    return {**given, "salted_password": bytes(size_bytes), **more}


def deletion(name: str = "ann", mechanism: int = SHA_256) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def alter(raw: RawConnection, *asked: dict[str, Any]) -> dict[str, tuple[ErrorCode, str | None]]:
    answer = raw.call(
        "alter_user_scram_credentials",
        0,
        deletions=[each for each in asked if "salt" not in each],
        upsertions=[each for each in asked if "salt" in each],
    )
    found = {each.user: (each.error_code, each.error_message) for each in answer.results}
    assert len(found) == len(answer.results)
    return found


def describe(raw: RawConnection, *names: str) -> dict[str, Any]:
    """What each has, or with what error it is answered."""
    asked = [{"name": name} for name in names] if names else None
    answer = raw.call("describe_user_scram_credentials", 0, users=asked)
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        if each.error_code is ErrorCode.none
        else (each.error_code, each.error_message)
        for each in answer.results
    }


FINE = (ErrorCode.none, None)


def test_users_come_change_and_go(raw: RawConnection) -> None:
    assert describe(raw) == {}
    assert alter(raw, upsertion("ann"), upsertion("bob", SHA_512, iterations=16_384)) == {"ann": FINE, "bob": FINE}
    assert alter(raw, upsertion("ann", SHA_512)) == {"ann": FINE}
    assert describe(raw) == {"ann": [(SHA_256, 4096), (SHA_512, 4096)], "bob": [(SHA_512, 16_384)]}
    assert alter(raw, deletion("ann"), upsertion("bob", SHA_512)) == {"ann": FINE, "bob": FINE}
    assert describe(raw, "ann") == {"ann": [(SHA_512, 4096)]}
    assert alter(raw, deletion("ann", SHA_512)) == {"ann": FINE}
    assert describe(raw) == {"bob": [(SHA_512, 4096)]}


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (upsertion(""), ErrorCode.unacceptable_credential, "Username must not be empty"),
        (deletion(""), ErrorCode.unacceptable_credential, "Username must not be empty"),
        (
            upsertion("x" * (MOST_NAME_BYTES + 1)),
            ErrorCode.unacceptable_credential,
            f"A user's name may have {MOST_NAME_BYTES} bytes",
        ),
        (upsertion(mechanism=0), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (deletion(mechanism=-1), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4095), ErrorCode.unacceptable_credential, "Too few iterations"),
        (upsertion(iterations=16_385), ErrorCode.unacceptable_credential, "Too many iterations"),
        (upsertion(salt=b""), ErrorCode.unacceptable_credential, "A salt has 1 to 1024 bytes"),
        (
            upsertion(salted_password=b"x"),
            ErrorCode.unacceptable_credential,
            "A salted password of SCRAM-SHA-256 has 32 bytes",
        ),
        (
            deletion("nobody"),
            ErrorCode.resource_not_found,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            deletion(mechanism=SHA_512),
            ErrorCode.resource_not_found,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_what_cannot_be_done_is_told_and_the_rest_is_done(
    raw: RawConnection, asked: dict[str, Any], code: ErrorCode, words: str
) -> None:
    alter(raw, upsertion("ann"))
    assert alter(raw, asked, upsertion("bob")) == {asked["name"]: (code, words), "bob": FINE}
    assert describe(raw) == {"ann": [(SHA_256, 4096)], "bob": [(SHA_256, 4096)]}


@pytest.mark.parametrize(
    "asked",
    [
        [upsertion("ann"), upsertion("ann", SHA_512)],
        [upsertion("ann"), upsertion("ann")],
        [deletion("ann"), upsertion("ann")],
        [deletion("ann"), deletion("ann", SHA_512), upsertion("ann")],
    ],
)
def test_a_user_that_is_named_twice_stays_as_it_is(raw: RawConnection, asked: list[dict[str, Any]]) -> None:
    alter(raw, upsertion("ann", iterations=5000))
    alter(raw, upsertion("ann", SHA_512, iterations=5000))
    before = describe(raw)
    assert alter(raw, *asked, upsertion("bob")) == {"ann": (ErrorCode.duplicate_resource, TWICE), "bob": FINE}
    assert describe(raw) == {**before, "bob": [(SHA_256, 4096)]}


def test_what_a_first_try_did_not_find_is_told_by_the_last_one_alone(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where brokers agree, a change is tried again when another one was faster."""
    alter(raw, upsertion())
    changing = server.broker.topics.changing_document

    def changing_twice(kind: Kind, change: Change, now: Now) -> Steps[None]:
        change({})
        return changing(kind, change, now)

    monkeypatch.setattr(server.broker.topics, "changing_document", changing_twice)
    assert alter(raw, deletion()) == {"ann": (ErrorCode.none, None)}


def test_who_is_described_twice_and_who_is_not_there(raw: RawConnection) -> None:
    alter(raw, upsertion("ann"), upsertion("bob"))
    assert describe(raw, "ann", "nobody", "bob", "ann") == {
        "ann": (
            ErrorCode.duplicate_resource,
            "Cannot describe SCRAM credentials for the same user twice in a single request: ann",
        ),
        "nobody": (
            ErrorCode.resource_not_found,
            "Attempt to describe a user credential that does not exist: nobody",
        ),
        "bob": [(SHA_256, 4096)],
    }
    answer = raw.call("describe_user_scram_credentials", 0, users=[])  # as Kafka: no name is all of them
    assert {each.user for each in answer.results} == {"ann", "bob"}


def test_what_is_stored_is_what_proves_it(server: Server, raw: RawConnection) -> None:
    for number, mechanism in ((SHA_256, "SCRAM-SHA-256"), (SHA_512, "SCRAM-SHA-512")):
        salted = salted_password(mechanism, "secret", b"salt", 4096)
        alter(raw, upsertion("ann", number, salted_password=salted))
        found = server.broker.users.now.find(mechanism, "ann")
        assert (found.credential, found.is_made_up) == (credential_of(mechanism, salted, b"salt", 4096), False)
        assert len(found.credential.stored_key) == hash_bytes(mechanism)
    assert set(HASHES) == set(server.broker.users.now.mechanisms("ann"))


def test_users_are_there_after_the_next_start(tmp_path: Any) -> None:
    for start in range(2):
        with Server(data_dir=str(tmp_path)) as server, RawConnection(server.bootstrap_servers) as raw:
            if start == 0:
                alter(raw, upsertion("ann"), upsertion("bob"))
                alter(raw, deletion("bob"))
                secret = server.broker.topics.document(Kind.USERS)[""]
            assert describe(raw) == {"ann": [(SHA_256, 4096)]}
            assert server.broker.topics.document(Kind.USERS)[""] == secret


def test_more_users_than_fit_are_refused_and_the_others_stay(raw: RawConnection) -> None:
    alter(raw, upsertion("ann"))
    for names in ([f"{number}-{'x' * 1000}" for number in range(900)], [str(number) for number in range(6000)]):
        refuse_all(raw, names)
    assert describe(raw) == {"ann": [(SHA_256, 4096)]}


def refuse_all(raw: RawConnection, names: list[str]) -> None:
    refused = alter(raw, *(upsertion(name) for name in names))
    assert {code for code, _ in refused.values()} == {ErrorCode.policy_violation}


def test_what_has_begun_is_done_whole_though_its_client_hangs_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        go_on.wait(10)

    def changing(kind: Kind, change: Change, now: Now) -> Steps[None]:
        begun.set()
        yield wait
        done.set()

    monkeypatch.setattr(server.broker.topics, "changing_document", changing)
    with RawConnection(server.bootstrap_servers) as other:
        other.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=[upsertion()])
        assert begun.wait(10)
    until(lambda: not server.call(lambda: len(list(server.service.connections.each()))), "its end to be seen")
    go_on.set()
    assert done.wait(10)


def test_users_that_cannot_be_read_are_named_and_the_others_get_in_after_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(data_dir=str(tmp_path)) as server, RawConnection(server.bootstrap_servers) as raw:
        alter(raw, upsertion("ann"))
    damaged = {"zed": 5, "": {"secret": 5}}
    change_in_folder(str(tmp_path), Kind.USERS, lambda users: {**users, **damaged})
    caplog.clear()
    with Server(data_dir=str(tmp_path)) as server, RawConnection(server.bootstrap_servers) as raw:
        assert f"{tmp_path}/{METADATA_TOPIC}-0: " in caplog.text and "['zed']" in caplog.text
        assert "the secret" in caplog.text
        assert describe(raw) == {"ann": [(SHA_256, 4096)]}
        assert alter(raw, upsertion("zed")) == {"zed": (ErrorCode.none, None)}
        assert describe(raw) == {"ann": [(SHA_256, 4096)], "zed": [(SHA_256, 4096)]}
        assert server.broker.topics.document(Kind.USERS)[""]["secret"] != 5


class NoRight:
    def may(self, *asked: object) -> bool:
        self.asked = asked
        return False


def test_who_may_not_is_refused(server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe(raw) == {}  # its connection has its rights
    rights = NoRight()
    monkeypatch.setattr(server.broker.access, "rights", lambda *of: rights if of else EVERY_RIGHT)
    with RawConnection(server.bootstrap_servers) as other:
        answer = other.call("describe_user_scram_credentials", 0, users=None)
        assert answer.error_code is ErrorCode.cluster_authorization_failed
        assert [str(each) for each in rights.asked] == ["8", "4", "kafka-cluster"]
        answer = other.call("alter_user_scram_credentials", 0, deletions=[deletion("d")], upsertions=[upsertion("u")])
        assert [str(each) for each in rights.asked] == ["7", "4", "kafka-cluster"]
        assert {each.user: each.error_code for each in answer.results} == dict.fromkeys(
            ("d", "u"), ErrorCode.cluster_authorization_failed
        )
    assert describe(raw) == {}
