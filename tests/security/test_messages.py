"""What clients say by PLAIN and OAUTHBEARER, and what of it is refused."""

from typing import Any

import pytest

from oncelog.client.net.sasl.mechanism import OAuthBearer, Plain
from oncelog.security import oauthbearer, plain
from oncelog.security.oauthbearer import Bearer, Wanted, bearer_of
from oncelog.security.scram import OTHER_AUTHORIZATION, Refused

WANTED = Wanted(name_claim="sub", scope_claim="scope")


def test_a_name_and_a_password() -> None:
    read = plain.read(Plain("ä", "p w").first())
    assert (read.name, read.password) == ("ä", "p w")
    assert plain.read(b"me\0me\0x").name == "me"
    assert "p w" not in repr(read)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"", None),
        (b"\0me", None),
        (b"\0me\0x\0y", None),
        (b"\0\xff\0x", None),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0me\0", "Authentication failed: password not specified"),
        (b"you\0me\0x", OTHER_AUTHORIZATION),
    ],
)
def test_what_is_no_name_and_password(message: bytes, told: str | None) -> None:
    with pytest.raises(Refused) as refused:
        plain.read(message)
    assert refused.value.told == told


def test_a_token() -> None:
    read = oauthbearer.read(OAuthBearer("a.b.c", {"traceId": "7"}).first())
    assert (read.token, read.authorization) == ("a.b.c", "")
    assert oauthbearer.read(b"n,a=me=2Cyou,\x01auth=bearer  a.b.c\x01\x01").authorization == "me,you"
    assert "a.b.c" not in repr(read)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\xff",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer d.e.f\x01\x01",
        b"p=x,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
    ],
)
def test_what_is_no_token(message: bytes) -> None:
    with pytest.raises(Refused):
        oauthbearer.read(message)


def test_claims_name_a_user() -> None:
    for scope, scopes in (("a b", {"a", "b"}), (["a", "b"], {"a", "b"}), ([], set()), ("", set())):
        bearer = bearer_of({"sub": " ann ", "exp": 17, "scope": scope}, WANTED)
        assert bearer == Bearer(name="ann", expires_s=17.0, scopes=frozenset(scopes))
    assert bearer_of({"azp": "me", "exp": 17.5}, Wanted(name_claim="azp", scope_claim="roles")).name == "me"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 17},
        {"exp": 17, "sub": ""},
        {"exp": 17, "sub": " "},
        {"exp": 17, "sub": ["ann"]},
        {"sub": "ann"},
        {"sub": "ann", "exp": "17"},
        {"sub": "ann", "exp": True},
        {"sub": "ann", "exp": 17, "scope": 3},
        {"sub": "ann", "exp": 17, "scope": [3]},
    ],
)
def test_claims_that_name_nobody(claims: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        bearer_of(claims, WANTED)
