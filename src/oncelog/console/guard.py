"""The guard of the page: the requests that it takes, and what browsers are told to keep apart from it.

Other pages in the same browser can knock here, too: one by a name of its own that suddenly points here (DNS rebinding),
one by a request across origins. So a request must name this host by an address, `localhost`, or a name of its own, and
must come from the page itself; one that changes something must say so. What is shown may be anyone's: the policy lets
nothing run or load that is not a file of the page.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any, Final

from oncelog.console.errors import Refused
from oncelog.metrics.hosts import is_for_another_page, is_ours, without_port

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
NOT_OURS: Final = (
    "ask for this page by an address, as localhost, or by a name of its own: the one that --console was given, or one "
    "of oncelog.page.hosts"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guard:
    """Around the whole application."""

    def __init__(self, app: App, own_names: Collection[str]) -> None:
        self._app = app
        self._own_names = own_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            check(_headers(scope["headers"]), self._own_names, is_change=scope["method"] not in ("GET", "HEAD"))
        except Refused as refused:
            await refuse(refused, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def check(headers: MutableMapping[str, str], own_names: Collection[str], *, is_change: bool = False) -> None:
    """Raises `Refused` for what must not be answered."""
    host = headers.get("host", "")
    if not is_ours(without_port(host), own_names):
        raise Refused(403, NOT_OURS)
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Refused(403, "the page answers itself and no other page")
    is_said = origin is not None or headers.get("sec-fetch-site") == "same-origin"
    if is_change and not is_said:
        raise Refused(403, "the page answers itself and no other page")  # every browser says it
    mode = None if is_change else headers.get("sec-fetch-mode")
    if is_for_another_page(headers.get("sec-fetch-site"), mode):
        raise Refused(403, "the page answers itself and no other page")


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}


async def refuse(refused: Refused, send: Send) -> None:
    body = refused.message.encode() + b"\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": [*headers, *HEADERS]})
    await send({"type": "http.response.body", "body": body})
