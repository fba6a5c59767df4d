"""Who may ask the page, and what browsers are told to keep apart from it.

There is no password, so the loopback address is the door. Other pages in the same browser can knock there, too: one by
a name of its own that suddenly points here (DNS rebinding), one by a request across origins. So a request must name
this host by an address, `localhost`, or the name that the page was given, and must come from the page itself. What is
shown may be anyone's: the policy lets nothing run or load that is not a file of the page.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from ipaddress import ip_address
from typing import Any, Final

from oncelog.console.errors import Refused

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

    def __init__(self, app: App, own_name: str) -> None:
        self._app = app
        self._own_name = own_name.casefold()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            check(_headers(scope["headers"]), self._own_name)
        except Refused as refused:
            await refuse(refused, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def check(headers: MutableMapping[str, str], own_name: str) -> None:
    """Raises `Refused` for what must not be answered."""
    host = headers.get("host", "")
    if not _is_ours(_without_port(host), own_name):
        raise Refused(403, "ask for this page by an address, as localhost, or by the name that --console was given")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Refused(403, "the page answers itself and no other page")
    is_visit = headers.get("sec-fetch-mode") == "navigate"  # a link may lead here from anywhere
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_visit:
        raise Refused(403, "the page answers itself and no other page")


def _is_ours(host: str, own_name: str) -> bool:
    if host == "localhost" or (own_name and host == own_name):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    host = host.casefold()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


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
