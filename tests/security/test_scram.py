"""The server's side of SCRAM: the example of the RFC, what is no proof, and that nothing tells unknown names apart."""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections import Counter
from typing import Any

import pytest

from oncelog.security import scram
from oncelog.security.scram import HASHES, Credential, Exchange, Found, Refused, credential_of, salted_password
from oncelog.security.scram_client import Scram

# The example of RFC 7677, section 3.
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> Credential:
    return credential_of(mechanism, salted_password(mechanism, password, SALT, 4096), SALT, 4096)


def exchange(mechanism: str = "SCRAM-SHA-256", *, is_made_up: bool = False) -> Exchange:
    found = Found(credential=credential(mechanism), is_made_up=is_made_up)
    return Exchange(mechanism, SERVER_NONCE, lambda name: found)


def test_the_example_of_the_rfc() -> None:
    served = exchange()
    assert served.evaluate(CLIENT_FIRST) == SERVER_FIRST
    assert (served.name, served.is_over) == ("user", False)
    assert served.evaluate(CLIENT_FINAL) == SERVER_FINAL
    assert served.is_over


def test_the_keys_of_the_rfcs_example() -> None:
    """RFC 5802's definitions, written out once more by hand."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    kept = credential()
    assert kept.server_key == hmac.new(salted, b"Server Key", "sha256").digest()
    assert kept.stored_key == hashlib.sha256(hmac.new(salted, b"Client Key", "sha256").digest()).digest()


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_client_and_a_server_agree(mechanism: str) -> None:
    served, client = exchange(mechanism), Scram(mechanism, "ä,b=c", "pencil", CLIENT_NONCE)
    final = client.answer(served.evaluate(client.first()))
    assert final is not None and client.answer(served.evaluate(final)) is None
    assert (served.name, served.is_over, client.is_proven) == ("ä,b=c", True, True)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"n=user,r=x",
        b"p=tls-unique,,n=user,r=x",  # binds to a channel that is not known here
        b"n,,m=must,n=user,r=x",  # an extension that must be understood
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=x",
        b"n,,n=us=2cer,r=x",
        b"n,,r=x,n=user",
        b"n,a=other,n=user,r=x",
        b"n,,n=user,r=x\n",
    ],
)
def test_what_is_no_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(Refused):
        exchange().evaluate(first)


@pytest.mark.parametrize("first", [b"n,a=user,n=user,r=x", b"y,,n=user,r=x", b"n,,n=user,r=x,ext=1,other=2"])
def test_what_is_one_is_answered(first: bytes) -> None:
    assert exchange().evaluate(first).startswith(b"r=x")


@pytest.mark.parametrize(
    "final",
    [
        CLIENT_FINAL.replace(b"p=d", b"p=e"),
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),  # says that it could have bound to a channel, and did not before
        CLIENT_FINAL.replace(b"hvYD", b"hvYE"),
        CLIENT_FINAL.replace(b",p=", b",q="),
        CLIENT_FINAL.partition(b",p=")[0],
        CLIENT_FINAL.partition(b",p=")[0] + b",p=" + b64encode(bytes(31)),
        CLIENT_FINAL.partition(b",p=")[0] + b",p=***",
        CLIENT_FINAL.partition(b",p=")[0] + b",p=A",
        b"",
        b"\xff",
        CLIENT_FIRST,
    ],
)
def test_what_is_no_proof_is_refused(final: bytes) -> None:
    served = exchange()
    served.evaluate(CLIENT_FIRST)
    with pytest.raises(Refused):
        served.evaluate(final)
    assert not served.is_over


def test_nothing_is_said_after_the_end() -> None:
    served = exchange()
    for message in (CLIENT_FIRST, CLIENT_FINAL):
        served.evaluate(message)
    with pytest.raises(Refused):
        served.evaluate(CLIENT_FINAL)


def test_a_made_up_credential_lets_nobody_in_even_with_its_own_password() -> None:
    served = exchange(is_made_up=True)
    assert served.evaluate(CLIENT_FIRST) == SERVER_FIRST
    with pytest.raises(Refused):
        served.evaluate(CLIENT_FINAL)


def test_the_name_of_a_delegation_token_is_no_users() -> None:
    served, client = exchange(), Scram("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    first = client.first() + b",tokenauth=true"
    client._first_bare = first[3:]
    final = client.answer(served.evaluate(first))
    assert final is not None
    with pytest.raises(Refused):
        served.evaluate(final)


@pytest.mark.parametrize("mechanism", HASHES)
def test_known_and_unknown_names_are_the_same_work(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: Counter[str] = Counter()
    for name in ("signed", "hashed", "salted_password", "exclusive_or"):
        real = getattr(scram, name)

        def counted(*arguments: Any, name: str = name, real: Any = real) -> Any:
            done[f"{name} {[len(each) for each in arguments if isinstance(each, bytes)]}"] += 1
            return real(*arguments)

        monkeypatch.setattr(scram, name, counted)

    def failed(is_made_up: bool) -> Counter[str]:
        done.clear()
        served = exchange(mechanism, is_made_up=is_made_up)
        challenge = served.evaluate(CLIENT_FIRST)
        nonce = re.match(b"r=([^,]*)", challenge)
        assert nonce is not None
        proof = b64encode(bytes(scram.hash_bytes(mechanism)))
        with pytest.raises(Refused):
            served.evaluate(b"c=biws,r=%b,p=%b" % (nonce[1], proof))
        found = Found(credential=credential(mechanism), is_made_up=is_made_up)
        assert not scram.is_password(mechanism, "wrong", found)
        return done.copy()

    known = failed(False)
    assert known == failed(True)
    assert known.total() > 3


def test_no_key_is_shown() -> None:
    assert "key" not in repr(Found(credential=credential()))
