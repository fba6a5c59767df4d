"""The sessions of users who have signed in: each has a token of chance that the browser keeps in a cookie, and of which
only the hash is here.

A session ends by itself after half a day, or an hour in which nothing was asked; and at once where its user is removed
or gets another password. Their number has a bound: of one user's the oldest goes, so that nobody shuts others out.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from oncelog.clock import HOUR_MS

TOKEN_BYTES: Final = 32
LIFETIME_MS: Final = 12 * HOUR_MS
IDLE_MS: Final = HOUR_MS
MOST_OF_A_USER: Final = 10
MOST: Final = 1_000


@dataclass(slots=True)
class Session:
    user: str
    proven_by: Any  # what was kept of the user then
    began_ms: int
    asked_ms: int


class Sessions:
    def __init__(self) -> None:
        self._by_hash: dict[bytes, Session] = {}  # in the order in which they began

    def __len__(self) -> int:
        return len(self._by_hash)

    def begin(self, user: str, users: Mapping[str, Any], now_ms: int) -> str:
        """The token. `users` are those by whom it was proven: where they have changed since, it is over at once."""
        self._end_old(users, now_ms)
        own = [each for each, session in self._by_hash.items() if session.user == user]
        for each in own[: max(0, len(own) + 1 - MOST_OF_A_USER)]:
            del self._by_hash[each]
        if len(self._by_hash) >= MOST:
            del self._by_hash[next(iter(self._by_hash))]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_hash[_hash(token)] = Session(user, users.get(user), now_ms, now_ms)
        return token

    def user_of(self, token: str, users: Mapping[str, Any], now_ms: int) -> str | None:
        key = _hash(token)
        session = self._by_hash.get(key)
        if session is None:
            return None
        if _is_over(session, users, now_ms):
            del self._by_hash[key]
            return None
        session.asked_ms = now_ms
        return session.user

    def end(self, token: str) -> None:
        self._by_hash.pop(_hash(token), None)

    def _end_old(self, users: Mapping[str, Any], now_ms: int) -> None:
        for key in [key for key, session in self._by_hash.items() if _is_over(session, users, now_ms)]:
            del self._by_hash[key]


def _is_over(session: Session, users: Mapping[str, Any], now_ms: int) -> bool:
    return (
        now_ms - session.began_ms >= LIFETIME_MS
        or now_ms - session.asked_ms >= IDLE_MS
        or users.get(session.user) != session.proven_by
    )


def _hash(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()
