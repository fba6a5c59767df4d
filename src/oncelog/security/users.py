"""Users, as they are kept: what proves that somebody is one of them.

    {"alice": {"SCRAM-SHA-256": {"salt": ..., "iterations": 8192, "stored": ..., "server": ...}}, "": {"secret": ...}}

Bytes are base64. No user has an empty name; under it stands the secret by which challenges are made up for names that
nobody has. They stay the same for a name, so that asking twice tells nothing, and they look like those of the users
that there are.

What cannot be read proves nothing: who has no other credential does not get in until it gets a new password. The others
do.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

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
UNREADABLE = (BadBase64, KeyError, TypeError, ValueError)  # what reading something else raises
_TEXT = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz")  # what salts of Java clients are made of
_TEXT_IN_ORDER = bytes(sorted(_TEXT))


class Shape(NamedTuple):
    """The part of a credential that is seen without knowing a password."""

    mechanism: str
    iterations: int
    salt_bytes: int
    is_text: bool


@dataclass(frozen=True, slots=True)
class User:
    """One of them, as what is kept of it was read."""

    kept: Any
    credentials: Mapping[str, Credential]  # by mechanism
    shapes: Mapping[str, Shape]
    unread: tuple[str, ...]  # mechanisms; an empty name where nothing can be read

    @property
    def strongest(self) -> str | None:
        return next((mechanism for mechanism in STRONGEST_FIRST if mechanism in self.credentials), None)


UNKNOWN: Final = User(None, {}, {}, ())


class Users:
    """One state of them. Where nobody was made yet, `secret` is what challenges are made up by."""

    def __init__(self, document: Document, secret: bytes, before: "Users | None" = None) -> None:
        """A user that has not changed since the state before is not read again."""
        known = {} if before is None else before._users
        self._users: dict[str, User] = {}
        for name, kept in document.items():
            if name != NOBODY:
                old = known.get(name)
                self._users[name] = old if old is not None and old.kept == kept else _read_user(kept)
        own = _secret_in(document)
        self._secret = own or secret
        self.is_secret_unread = own is None and NOBODY in document

    @property
    def names(self) -> list[str]:
        return sorted(name for name, user in self._users.items() if user.credentials)

    @property
    def unread(self) -> list[str]:
        """Entries that cannot be read: users, each with a mechanism where the others can be."""
        return sorted(
            f"{name} ({mechanism})" if mechanism else name
            for name, user in self._users.items()
            for mechanism in user.unread
        )

    def mechanisms(self, name: str) -> dict[str, int]:
        """The mechanisms of a user, with their iterations; empty where there is none."""
        return {mechanism: each.iterations for mechanism, each in self._user(name).credentials.items()}

    def find(self, mechanism: str, name: str) -> Found:
        """The credential of a user of this name. The same work is done whether there is such a user or not."""
        made_up = self._made_up(mechanism, name, self._shapes[mechanism])
        known = self._user(name).credentials.get(mechanism)
        return Found(credential=made_up, is_made_up=True) if known is None else Found(credential=known)

    def find_for_password(self, name: str) -> tuple[str, Found]:
        """The same for who shows the password itself; with the mechanism by which it is looked at."""
        shape = self._picked(name, self._password_shapes)
        made_up = self._made_up(shape.mechanism, name, [shape])
        user = self._user(name)
        mechanism = user.strongest
        if mechanism is None:
            return shape.mechanism, Found(credential=made_up, is_made_up=True)
        return mechanism, Found(credential=user.credentials[mechanism])

    def _user(self, name: str) -> User:
        return self._users.get(name, UNKNOWN)

    @cached_property
    def _shapes(self) -> dict[str, list[Shape]]:
        found: dict[str, set[Shape]] = {mechanism: set() for mechanism in HASHES}
        for user in self._users.values():
            for mechanism, shape in user.shapes.items():
                found[mechanism].add(shape)
        return {mechanism: _or_default(mechanism, shapes) for mechanism, shapes in found.items()}

    @cached_property
    def _password_shapes(self) -> list[Shape]:
        shown = {user.shapes[strongest] for user in self._users.values() if (strongest := user.strongest)}
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
        if _secret_in(self.document) is None:
            self.document[NOBODY] = {"secret": b64encode(self._secret).decode()}
        kept = {
            "salt": b64encode(credential.salt).decode(),
            "iterations": credential.iterations,
            "stored": b64encode(credential.stored_key).decode(),
            "server": b64encode(credential.server_key).decode(),
        }
        self.document[name] = {**self._entry(name), mechanism: kept}

    def remove(self, name: str, mechanism: str) -> bool:
        """False where there is nothing to remove."""
        entry = self._entry(name)
        if mechanism not in entry:
            return False
        left = {each: kept for each, kept in entry.items() if each != mechanism}
        if left:
            self.document[name] = left
        else:
            del self.document[name]
        return True

    def _entry(self, name: str) -> Mapping[str, Any]:
        entry = None if name == NOBODY else self.document.get(name)
        return entry if isinstance(entry, Mapping) else {}


def what_is_wrong_with(name: str) -> str | None:
    if not name:
        return "Username must not be empty"
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:  # of a command line
        return "A user's name must be UTF-8"
    if size_bytes > MOST_NAME_BYTES:
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


def _secret_in(document: Document) -> bytes | None:
    try:
        return b64decode(document[NOBODY]["secret"], validate=True) or None
    except UNREADABLE:
        return None


def _read_user(kept: Any) -> User:
    if not isinstance(kept, Mapping) or not kept:
        return User(kept, {}, {}, ("",))
    credentials: dict[str, Credential] = {}
    unread = []
    for mechanism, each in kept.items():
        try:
            credentials[mechanism] = _read(mechanism, each)
        except UNREADABLE:
            unread.append(mechanism)
    shapes = {mechanism: _shape(mechanism, each) for mechanism, each in credentials.items()}
    return User(kept, credentials, shapes, tuple(unread))


def _read(mechanism: str, kept: Mapping[str, Any]) -> Credential:
    """Raises one of `UNREADABLE`."""
    found = Credential(
        salt=b64decode(kept["salt"], validate=True),
        iterations=int(kept["iterations"]),
        stored_key=b64decode(kept["stored"], validate=True),
        server_key=b64decode(kept["server"], validate=True),
    )
    if len(found.server_key) != hash_bytes(mechanism):
        raise ValueError("a key of another length")
    if wrong := what_is_wrong_with_salted(mechanism, found.iterations, found.salt, found.stored_key):
        raise ValueError(wrong)
    return found


def _shape(mechanism: str, credential: Credential) -> Shape:
    salt = credential.salt
    return Shape(mechanism, credential.iterations, len(salt), _TEXT.issuperset(salt))


def _or_default(mechanism: str, shapes: set[Shape]) -> list[Shape]:
    return sorted(shapes) or [Shape(mechanism, DEFAULT_ITERATIONS, SALT_BYTES, False)]
