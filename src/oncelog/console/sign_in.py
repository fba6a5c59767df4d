"""Signing in to the page: by the users of the log, with the password that their SCRAM credentials were made of.

Who asks for anything but the page's own files has to have signed in, where that is asked for, and sees what the
same user may see by Kafka's requests.
"""

import json
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from oncelog.console.errors import Refused
from oncelog.console.sessions import LIFETIME_MS, Sessions
from oncelog.security.documents import Document, Kind
from oncelog.server.access import EVERY_RIGHT, Rights
from oncelog.server.broker import Broker
from oncelog.server.web_proofs import Unproven, WebProofs

MOST_BODY_BYTES: Final = 4096
SIGN_IN_FIRST: Final = "Sign in first."
NOT_JSON: Final = "Send name and password as JSON."
ANSWER_HEADERS: Final = {"cache-control": "no-store"}


class SignIn:
    def __init__(self, broker: Broker, *, is_asked_for: bool, is_encrypted: bool) -> None:
        self._broker = broker
        self.is_asked_for = is_asked_for
        self._is_encrypted = is_encrypted
        self._sessions = Sessions()
        self._proofs = WebProofs(broker, "the page")
        self.port = 0  # cookies know no ports: two servers of one machine would take each other's

    @property
    def _cookie(self) -> str:
        return f"{'__Host-' if self._is_encrypted else ''}oncelog-{self.port}"

    @property
    def _users(self) -> Document:
        return self._broker.topics.document(Kind.USERS)

    def rights(self, request: Request) -> Rights:
        """The rights of the user that asks. Raises `Refused`."""
        if not self.is_asked_for:
            return EVERY_RIGHT
        user = self._user(request)
        if user is None:
            raise Refused(401, SIGN_IN_FIRST)
        return self._broker.access.rights(f"User:{user}", _host(request))

    def _user(self, request: Request) -> str | None:
        token = _token(request, self._cookie)
        return None if token is None else self._sessions.user_of(token, self._users, self._now_ms())

    def _now_ms(self) -> int:
        return self._broker.clock.now().monotonic_ms

    # What the page asks

    async def session(self, request: Request) -> Response:
        return _answer({"is_asked_for": self.is_asked_for, "user": self._user(request) if self.is_asked_for else None})

    async def begin(self, request: Request) -> Response:
        try:
            user, proven_by = await self._proven(request)
        except Refused as refused:
            return _answer({"error": refused.message}, refused.status)
        token = self._sessions.begin(user, proven_by, self._now_ms())
        answer = _answer({"user": user})
        self._set_cookie(answer, token, LIFETIME_MS // 1000)
        return answer

    async def end(self, request: Request) -> Response:
        token = _token(request, self._cookie)
        if token is not None:
            self._sessions.end(token)
        answer = _answer({"user": None})
        self._set_cookie(answer, "", 0)
        return answer

    def _set_cookie(self, answer: Response, token: str, max_age_s: int) -> None:
        answer.set_cookie(
            self._cookie,
            token,
            max_age=max_age_s,
            path="/",
            secure=self._is_encrypted,
            httponly=True,
            samesite="strict",
        )

    async def _proven(self, request: Request) -> tuple[str, Document]:
        """The user whose name and password these are, and the users as they were read. Raises `Refused`."""
        user, password = await _name_and_password(request)  # who sends it slowly takes nobody's place meanwhile
        try:
            return user, await self._proofs.of_password(_host(request), user, password)
        except Unproven as unproven:
            raise Refused(unproven.status, unproven.message) from None


async def _name_and_password(request: Request) -> tuple[str, str]:
    """Another page could only send what is no JSON without being asked for its origin."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, NOT_JSON)
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY_BYTES:
            raise Refused(413, NOT_JSON)
    try:
        given = json.loads(body)
        user, password = given["user"], given["password"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused(400, NOT_JSON) from None
    if not _is_text(user) or not _is_text(password):
        raise Refused(400, NOT_JSON)
    return user, password


def _is_text(given: object) -> bool:
    """JSON can hold halves of letters, of which nobody can make bytes."""
    try:
        return isinstance(given, str) and bool(given.encode())
    except UnicodeError:
        return False


def _token(request: Request, cookie: str) -> str | None:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(cookie)
    except CookieError:
        return None
    return None if found is None else found.value


def _host(request: Request) -> str:
    return request.client.host if request.client is not None else "?"


def _answer(said: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(said), status, headers=ANSWER_HEADERS, media_type="application/json")
