"""Users, as they are kept: what proves that somebody is one of them.

    {"alice": {"SCRAM-SHA-256": {"salt": ..., "iterations": 8192, "stored": ..., "server": ...}}, "": {"secret": ...}}

Bytes are base64. No user has an empty name; under it stands the secret by which challenges are made up for names that
nobody has. They stay the same for a name, so that asking twice tells nothing, and they look like those of the users
that there are.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from oncelog.security.documents import Document, TooMuch
from oncelog.security.scram import HASHES, LEAST_ITERATIONS, MOST_STORED_ITERATIONS, Credential, Found, hash_bytes

NOBODY = ""
DEFAULT_ITERATIONS = 8192
SALT_BYTES = 24
SECRET_BYTES = 32
MOST_USERS = 5_000  # with one mechanism some fewer fit into a document
MOST_NAME_BYTES = 1024
MOST_SALT_BYTES = 1024
NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}  # Kafka's
STRONGEST_FIRST = ("SCRAM-SHA-512", "SCRAM-SHA-256")
_TEXT = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz")  # what salts of Java clients are made of
_TEXT_IN_ORDER = bytes(sorted(_TEXT))


class Shape(NamedTuple):
    """What can be seen of a credential by who knows no password."""

    mechanism: str
    iterations: int
    salt_bytes: int
    is_text: bool


class Users:
    """One state of them. Where nobody was made yet, `secret` is what challenges are made up by."""

    def __init__(self, document: Document, secret: bytes) -> None:
        self._document = document
        kept = document.get(NOBODY)
        self._secret = secret if kept is None else b64decode(kept["secret"])

    @property
    def names(self) -> list[str]:
        return sorted(name for name in self._document if name != NOBODY)

    def mechanisms(self, name: str) -> dict[str, int]:
        """Of a user, with their iterations; empty where there is none."""
        return {mechanism: kept["iterations"] for mechanism, kept in self._entry(name).items()}

    def find(self, mechanism: str, name: str) -> Found:
        """By what somebody of this name proves it. The same is done whether there is such a user."""
        made_up = self._made_up(mechanism, name, self._shapes[mechanism])
        kept = self._entry(name).get(mechanism)
        return Found(credential=made_up, is_made_up=True) if kept is None else Found(credential=_read(kept))

    def find_for_password(self, name: str) -> tuple[str, Found]:
        """The same for who shows the password itself; with the mechanism by which it is looked at."""
        shape = self._picked(name, self._password_shapes)
        made_up = self._made_up(shape.mechanism, name, [shape])
        entry = self._entry(name)
        mechanism = _strongest(entry)
        if mechanism is None:
            return shape.mechanism, Found(credential=made_up, is_made_up=True)
        return mechanism, Found(credential=_read(entry[mechanism]))

    def _entry(self, name: str) -> Mapping[str, Any]:
        entry: Mapping[str, Any] = {} if name == NOBODY else self._document.get(name, {})
        return entry

    @cached_property
    def _shapes(self) -> dict[str, list[Shape]]:
        found: dict[str, set[Shape]] = {mechanism: set() for mechanism in HASHES}
        for name in self._document:
            for mechanism, kept in self._entry(name).items():
                found[mechanism].add(_shape(mechanism, kept))
        return {mechanism: _or_default(mechanism, shapes) for mechanism, shapes in found.items()}

    @cached_property
    def _password_shapes(self) -> list[Shape]:
        entries = (self._entry(name) for name in self._document)
        shown = {_shape(strongest, entry[strongest]) for entry in entries if (strongest := _strongest(entry))}
        return _or_default(STRONGEST_FIRST[0], shown)

    def _picked(self, name: str, shapes: list[Shape]) -> Shape:
        return shapes[int.from_bytes(self._chance("shape", name)[:4]) % len(shapes)]

    def _made_up(self, mechanism: str, name: str, shapes: list[Shape]) -> Credential:
        shape = self._picked(name, shapes)
        salt = (hashlib.shake_256(self._chance(f"salt {mechanism}", name))).digest(shape.salt_bytes)
        if shape.is_text:
            salt = bytes(_TEXT_IN_ORDER[byte % len(_TEXT_IN_ORDER)] for byte in salt)
        keys = hashlib.shake_256(self._chance(f"keys {mechanism}", name)).digest(2 * hash_bytes(mechanism))
        half = hash_bytes(mechanism)
        return Credential(salt=salt, iterations=shape.iterations, stored_key=keys[:half], server_key=keys[half:])

    def _chance(self, what: str, name: str) -> bytes:
        return hmac.digest(self._secret, f"{what}\0{name}".encode(), "sha256")


class Edited:
    """The document, as a copy that is changed, however many changes there are."""

    def __init__(self, document: Document, secret: bytes) -> None:
        """`secret` counts where there is none yet."""
        self.document: dict[str, Any] = dict(document)
        self._secret = secret

    def put(self, name: str, mechanism: str, credential: Credential) -> None:
        """Raises TooMuch."""
        if name not in self.document and len(self.document) > MOST_USERS:
            raise TooMuch(f"there are {MOST_USERS:,} users, and no more fit")
        self.document.setdefault(NOBODY, {"secret": b64encode(self._secret).decode()})
        kept = {
            "salt": b64encode(credential.salt).decode(),
            "iterations": credential.iterations,
            "stored": b64encode(credential.stored_key).decode(),
            "server": b64encode(credential.server_key).decode(),
        }
        self.document[name] = {**self.document.get(name, {}), mechanism: kept}

    def remove(self, name: str, mechanism: str) -> bool:
        """False where there is nothing to remove."""
        entry = {} if name == NOBODY else self.document.get(name, {})
        if mechanism not in entry:
            return False
        left = {each: kept for each, kept in entry.items() if each != mechanism}
        if left:
            self.document[name] = left
        else:
            del self.document[name]
        return True


def what_is_wrong_with(name: str) -> str | None:
    if not name:
        return "Username must not be empty"
    if len(name.encode()) > MOST_NAME_BYTES:
        return f"A user's name may have {MOST_NAME_BYTES} bytes"
    return None


def what_is_wrong_with_salted(mechanism: str, iterations: int, salt: bytes, salted: bytes) -> str | None:
    """Kafka's words for Kafka's checks; that salt and salted password are what they should be, it does not ask."""
    if iterations < LEAST_ITERATIONS:
        return "Too few iterations"
    if iterations > MOST_STORED_ITERATIONS:
        return "Too many iterations"
    if not 0 < len(salt) <= MOST_SALT_BYTES:
        return f"A salt has 1 to {MOST_SALT_BYTES} bytes"
    if len(salted) != hash_bytes(mechanism):
        return f"A salted password of {mechanism} has {hash_bytes(mechanism)} bytes"
    return None


def _read(kept: Mapping[str, Any]) -> Credential:
    return Credential(
        salt=b64decode(kept["salt"]),
        iterations=kept["iterations"],
        stored_key=b64decode(kept["stored"]),
        server_key=b64decode(kept["server"]),
    )


def _shape(mechanism: str, kept: Mapping[str, Any]) -> Shape:
    salt = b64decode(kept["salt"])
    return Shape(mechanism, kept["iterations"], len(salt), _TEXT.issuperset(salt))


def _or_default(mechanism: str, shapes: set[Shape]) -> list[Shape]:
    return sorted(shapes) or [Shape(mechanism, DEFAULT_ITERATIONS, SALT_BYTES, False)]


def _strongest(entry: Mapping[str, Any]) -> str | None:
    return next((mechanism for mechanism in STRONGEST_FIRST if mechanism in entry), None)
