"""Users as they are kept, and what is made up for names that nobody has."""

import os
from collections.abc import Mapping

import pytest

from oncelog.security import documents
from oncelog.security.documents import Document, Kind
from oncelog.security.scram import HASHES, MOST_STORED_ITERATIONS, Credential, credential_of, hash_bytes
from oncelog.security.users import (
    DEFAULT_ITERATIONS,
    MOST_NAME_BYTES,
    MOST_USERS,
    SALT_BYTES,
    Edited,
    Users,
    what_is_wrong_with,
    what_is_wrong_with_salted,
)

SECRET, OTHER = b"s" * 32, b"o" * 32


def credential(mechanism: str, iterations: int = 4096, salt: bytes = b"salt") -> Credential:
    return credential_of(mechanism, bytes(hash_bytes(mechanism)), salt, iterations)


def document(**users: dict[str, Credential]) -> Document:
    return with_credentials({}, SECRET, users)


def with_credentials(before: Document, secret: bytes, users: Mapping[str, Mapping[str, Credential]]) -> Document:
    edited = Edited(before, secret)
    for name, credentials in users.items():
        for mechanism, each in credentials.items():
            edited.put(name, mechanism, each)
    return edited.document


def test_what_is_kept_is_found_again_after_it_was_stored() -> None:
    kept = {mechanism: credential(mechanism) for mechanism in HASHES}
    stored = documents.decode(Kind.USERS, documents.encode(Kind.USERS, document(ann=kept)))
    users = Users(stored, OTHER)
    assert users.names == ["ann"]
    assert users.mechanisms("ann") == dict.fromkeys(HASHES, 4096)
    for mechanism, each in kept.items():
        found = users.find(mechanism, "ann")
        assert (found.credential, found.is_made_up) == (each, False)
    assert users.find_for_password("ann")[0] == "SCRAM-SHA-512"


def test_a_user_is_gone_with_the_last_credential() -> None:
    kept = document(ann={mechanism: credential(mechanism) for mechanism in HASHES})
    edited = Edited(kept, OTHER)
    assert edited.remove("ann", "SCRAM-SHA-256") and not edited.remove("ann", "SCRAM-SHA-256")
    left = dict(edited.document)
    assert Users(left, OTHER).mechanisms("ann") == {"SCRAM-SHA-512": 4096}
    assert Users(left, OTHER).find("SCRAM-SHA-256", "ann").is_made_up
    assert not edited.remove("bob", "SCRAM-SHA-512") and not edited.remove("", "secret")
    assert edited.remove("ann", "SCRAM-SHA-512")
    assert Users(edited.document, OTHER).names == []
    assert Users(kept, OTHER).mechanisms("ann") == dict.fromkeys(HASHES, 4096)


def test_there_are_only_so_many() -> None:
    edited = Edited({}, SECRET)
    for number in range(MOST_USERS):
        edited.put(str(number), "SCRAM-SHA-256", credential("SCRAM-SHA-256"))
    edited.put("0", "SCRAM-SHA-512", credential("SCRAM-SHA-512"))
    with pytest.raises(documents.TooMuch):
        edited.put("one more", "SCRAM-SHA-256", credential("SCRAM-SHA-256"))


def test_the_secret_is_no_user() -> None:
    users = Users(document(ann={"SCRAM-SHA-256": credential("SCRAM-SHA-256")}), OTHER)
    assert users.names == ["ann"] and users.mechanisms("") == {}
    assert users.find("SCRAM-SHA-256", "").is_made_up


@pytest.mark.parametrize("mechanism", HASHES)
def test_asking_twice_for_an_unknown_name_tells_nothing(mechanism: str) -> None:
    kept = document(ann={"SCRAM-SHA-256": credential("SCRAM-SHA-256")})
    # Another start, and another user: the secret stays, and so does what is made of it.
    more = with_credentials(kept, OTHER, {"eve": {"SCRAM-SHA-512": credential("SCRAM-SHA-512")}})
    found = Users(kept, os.urandom(32)).find(mechanism, "nobody")
    assert found.is_made_up
    assert Users(kept, os.urandom(32)).find(mechanism, "nobody") == found
    if mechanism == "SCRAM-SHA-256":
        assert Users(more, os.urandom(32)).find(mechanism, "nobody") == found
    assert Users(kept, OTHER).find(mechanism, "somebody").credential.salt != found.credential.salt
    assert Users({}, OTHER).find(mechanism, "nobody").credential.salt != found.credential.salt


def test_what_is_made_up_looks_like_what_there_is() -> None:
    text, raw = b"1k9zk3q0x8" * 2, bytes(range(16))
    kept = document(
        ann={"SCRAM-SHA-256": credential("SCRAM-SHA-256", 4096, text)},
        bob={"SCRAM-SHA-256": credential("SCRAM-SHA-256", 8192, raw)},
    )
    shapes = set()
    for number in range(100):
        made_up = Users(kept, OTHER).find("SCRAM-SHA-256", f"nobody{number}").credential
        shapes.add((made_up.iterations, len(made_up.salt), made_up.salt.isalnum()))
        assert len(made_up.stored_key) == len(made_up.server_key) == 32
    assert shapes == {(4096, 20, True), (8192, 16, False)}
    nobody = Users({}, OTHER).find("SCRAM-SHA-512", "nobody").credential
    assert (nobody.iterations, len(nobody.salt)) == (DEFAULT_ITERATIONS, SALT_BYTES)


def test_a_password_of_nobody_is_looked_at_like_one_of_somebody() -> None:
    kept = document(ann={"SCRAM-SHA-256": credential("SCRAM-SHA-256", 12_000)})
    mechanism, found = Users(kept, OTHER).find_for_password("nobody")
    assert (mechanism, found.is_made_up, found.credential.iterations) == ("SCRAM-SHA-256", True, 12_000)


@pytest.mark.parametrize("name", ["", "x" * (MOST_NAME_BYTES + 1), "ä" * MOST_NAME_BYTES])
def test_names_that_no_user_may_have(name: str) -> None:
    assert what_is_wrong_with(name)
    assert what_is_wrong_with("x" * MOST_NAME_BYTES) is None


@pytest.mark.parametrize("mechanism", HASHES)
def test_salted_passwords_are_what_they_should_be(mechanism: str) -> None:
    right = bytes(hash_bytes(mechanism))
    for iterations, salt, salted, words in (
        (4095, b"s", right, "Too few iterations"),
        (MOST_STORED_ITERATIONS + 1, b"s", right, "Too many iterations"),
        (4096, b"", right, "A salt has 1 to 1024 bytes"),
        (4096, bytes(1025), right, "A salt has 1 to 1024 bytes"),
        (4096, b"s", right[1:], f"A salted password of {mechanism} has {len(right)} bytes"),
        (4096, b"s", right, None),
        (MOST_STORED_ITERATIONS, bytes(1024), right, None),
    ):
        assert what_is_wrong_with_salted(mechanism, iterations, salt, salted) == words


GOOD = {"SCRAM-SHA-256": {"salt": "c2FsdA==", "iterations": 4096, "stored": "A" * 43 + "=", "server": "A" * 43 + "="}}
UNREADABLE: list[object] = [
    5,
    None,
    {},
    [],
    "SCRAM-SHA-256",
    {"SCRAM-SHA-256": 5},
    {"SCRAM-SHA-256": {"salt": "x"}},
    {"SCRAM-1": GOOD["SCRAM-SHA-256"]},
    *({"SCRAM-SHA-256": {**GOOD["SCRAM-SHA-256"], "iterations": wrong}} for wrong in ("x", None, 1, 10**9)),
    *({"SCRAM-SHA-256": {**GOOD["SCRAM-SHA-256"], "stored": wrong}} for wrong in ("", "AAAA", "?", 5)),
    {"SCRAM-SHA-256": {**GOOD["SCRAM-SHA-256"], "server": ""}},
    {"SCRAM-SHA-256": {**GOOD["SCRAM-SHA-256"], "salt": ""}},
]


@pytest.mark.parametrize("unreadable", UNREADABLE)
def test_who_cannot_be_read_does_not_get_in_and_the_others_do(unreadable: object) -> None:
    kept = {**document(ann={"SCRAM-SHA-512": credential("SCRAM-SHA-512")}), "zed": unreadable}
    users = Users(kept, OTHER)
    assert [each.partition(" ")[0] for each in users.unread] == ["zed"]
    assert users.names == ["ann"] and users.mechanisms("zed") == {}
    for mechanism in HASHES:
        assert users.find(mechanism, "zed").is_made_up
    assert users.find_for_password("zed")[1].is_made_up
    assert not users.find_for_password("ann")[1].is_made_up
    edited = Edited(kept, OTHER)
    assert not edited.remove("zed", "SCRAM-SHA-512")
    edited.put("zed", "SCRAM-SHA-256", credential("SCRAM-SHA-256"))
    assert Users(edited.document, OTHER).names == ["ann", "zed"]


def test_one_mechanism_that_cannot_be_read_leaves_a_user_the_other() -> None:
    users = Users({"ann": {**GOOD, "SCRAM-SHA-512": 5}}, OTHER)
    assert users.unread == ["ann (SCRAM-SHA-512)"]
    assert users.mechanisms("ann") == {"SCRAM-SHA-256": 4096}


@pytest.mark.parametrize("unreadable", [5, None, {}, {"secret": 5}, {"secret": ""}, {"secret": "?"}])
def test_a_secret_that_cannot_be_read_is_another_one_until_a_user_changes(unreadable: object) -> None:
    users = Users({"": unreadable, "ann": GOOD}, SECRET)
    assert users.is_secret_unread and users.names == ["ann"]
    assert users.find("SCRAM-SHA-256", "nobody") == Users({"ann": GOOD}, SECRET).find("SCRAM-SHA-256", "nobody")
    edited = Edited({"": unreadable, "ann": GOOD}, SECRET)
    edited.put("bob", "SCRAM-SHA-256", credential("SCRAM-SHA-256"))
    assert not Users(edited.document, OTHER).is_secret_unread
    assert not Users({}, SECRET).is_secret_unread


def test_who_has_not_changed_is_not_read_again() -> None:
    given = {name: {"SCRAM-SHA-256": credential("SCRAM-SHA-256")} for name in ("ann", "bob")}
    kept = document(**given)
    before = Users(kept, OTHER)
    edited = Edited(documents.decode(Kind.USERS, documents.encode(Kind.USERS, kept)), OTHER)
    edited.put("bob", "SCRAM-SHA-256", credential("SCRAM-SHA-256", 5000))
    after = Users(edited.document, OTHER, before)

    def credential_of_one(users: Users, name: str) -> Credential:
        return users.find("SCRAM-SHA-256", name).credential

    assert credential_of_one(after, "ann") is credential_of_one(before, "ann")
    assert credential_of_one(Users(edited.document, OTHER), "ann") is not credential_of_one(before, "ann")
    assert credential_of_one(after, "bob").iterations == 5000
