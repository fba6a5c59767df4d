"""`GET /metrics` on a port of its own: as much HTTP as a scraper needs, and no more.

One request a connection. The request's head, the number of scrapes at a time, and the time that each may take are
bounded, and connections that ask nothing keep nobody out. Text is made only as fast as the scraper takes it, so a slow
one costs a buffer and nothing else.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from oncelog.metrics.hosts import is_for_another_page, is_nobody_elses, without_port

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8 * 1024
MAX_SCRAPES = 16
MAX_OPEN = 2 * MAX_SCRAPES  # with those that have asked nothing yet, or wait to be told that it is too many
SCRAPE_S = 10.0
PIECE_BYTES = 32 * 1024
KEPT_APART = "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Turns(Protocol):
    """Turns of long work, on a loop that others share."""

    def is_over(self) -> bool: ...
    async def next(self) -> None: ...


class Refusal(NamedTuple):
    status: str
    text: str
    header: str | None = None


class Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


BAD_REQUEST = Refusal("400 Bad Request", "this is not HTTP\n")
NOT_FOUND = Refusal("404 Not Found", "the metrics are at /metrics\n")
NOT_ALLOWED = Refusal("405 Method Not Allowed", "GET or HEAD\n", header="Allow: GET, HEAD")
TOO_LARGE = Refusal("431 Request Header Fields Too Large", "the request is too large\n")
OTHER_HOST = Refusal(
    "403 Forbidden", "ask by an address, as localhost, or by a name of oncelog.page.hosts, which the server was given\n"
)
OTHER_PAGE = Refusal("403 Forbidden", "the metrics are not for another page\n")
BUSY = Refusal("503 Service Unavailable", "too many scrapes at a time\n")


Text = Callable[[], Iterable[str]]
Admit = Callable[[str, str | None], Awaitable[Text]]  # who asks from that host, with that `Authorization`
Enter = Callable[[asyncio.Protocol], asyncio.BaseProtocol]


@dataclass(frozen=True, slots=True)
class Head:
    wants_body: bool
    can_chunk: bool


class MetricsServer:
    def __init__(
        self,
        text: Text,
        timeout_s: float = SCRAPE_S,
        turns: Turns | None = None,
        own_names: Collection[str] = (),
        admit: Admit | None = None,
        enter: Enter | None = None,
        place_of: Callable[[str], str] = str,
    ) -> None:
        """`admit` answers the text that somebody may read, where that is not the same for all, or raises Refused.
        `enter` puts TLS around a connection. `place_of` says which hosts count as one."""
        self._text = text
        self._admit = admit
        self._enter = enter
        self._place_of = place_of
        self._turns = turns  # a short line may be the sum of much
        self._timeout_s = timeout_s
        self._own_names = own_names
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._silent: dict[asyncio.StreamWriter, None] = {}  # of these: have asked nothing yet, in the order they came
        self._scrapes = 0

    async def start(self, host: str, port: int) -> int:
        """The port that it listens on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._new_connection, host or None, port, backlog=64)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def _new_connection(self) -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        connection = asyncio.StreamReaderProtocol(reader, self._serve)
        return connection if self._enter is None else self._enter(connection)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer, task in self._open.items():
            writer.transport.abort()
            task.cancel()  # who is not let in may be told so seconds later
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_OPEN and not self._make_room():
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._open[writer] = task
        self._silent[writer] = None
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._answer(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.CancelledError):
            pass  # too slow, or gone, or the server stops; what it was owed is forgotten with the connection
        except Exception:
            if not writer.transport.is_closing():  # what is gone may not be written to
                logger.exception("the metrics could not be told")
        finally:
            self._forget(writer)
            writer.transport.abort()

    def _make_room(self) -> bool:
        """Of those that have asked nothing, the oldest one of the host that has most: who comes again and again pushes
        out no scraper that is about to ask."""
        counts = Counter(map(self._place, self._silent))
        most = max(counts.values(), default=0)
        silent = next((each for each in self._silent if counts[self._place(each)] == most), None)
        if silent is None:
            return False
        self._forget(silent)
        silent.transport.abort()
        return True

    def _place(self, writer: asyncio.StreamWriter) -> str:
        return self._place_of(_host(writer))

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        self._open.pop(writer, None)
        self._silent.pop(writer, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            read = await _head_of(reader)  # in any case: a close with unread bytes would eat the answer
            self._silent.pop(writer, None)
            head = read_head(read)
            headers = headers_of(read)
            refuse_other_pages(headers, self._own_names)
            text = self._text if self._admit is None else await self._admit(_host(writer), headers.get("authorization"))
            if self._scrapes >= MAX_SCRAPES:
                raise Refused(BUSY)
        except Refused as refused:
            writer.write(_refused(refused.refusal))
            await writer.drain()
            return
        self._scrapes += 1
        try:
            writer.write(_accepted(head))
            if head.wants_body:
                await _send(text(), head.can_chunk, writer, self._turns)
            await writer.drain()
        finally:
            self._scrapes -= 1


def _host(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else "?"


async def _head_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(TOO_LARGE) from None
    except asyncio.IncompleteReadError:
        raise Refused(BAD_REQUEST) from None


def read_head(head: bytes) -> Head:
    """The request in the first line of a head. Raises Refused."""
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    if len(parts) != 3 or parts[2] not in (b"HTTP/1.0", b"HTTP/1.1"):
        raise Refused(BAD_REQUEST)
    method, target, version = parts
    if target.partition(b"?")[0] != b"/metrics":
        raise Refused(NOT_FOUND)
    if method not in (b"GET", b"HEAD"):
        raise Refused(NOT_ALLOWED)
    return Head(wants_body=method == b"GET", can_chunk=version == b"HTTP/1.1")


def headers_of(head: bytes) -> dict[str, str]:
    """The headers. Of one that comes twice, all, with commas between: so a second `Host` is no way around the first."""
    found: dict[str, str] = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.decode("latin-1").partition(":")
        name, value = name.strip().lower(), value.strip()
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def refuse_other_pages(headers: Mapping[str, str], own_names: Collection[str]) -> None:
    """Raises Refused where another name was asked, which may be that of a page in somebody's browser, and where the
    browser says that another page asks. All browsers say which name, and who says none is none."""
    for host in headers.get("host", "localhost").split(","):
        if not is_nobody_elses(without_port(host), own_names):
            raise Refused(OTHER_HOST)
    if is_for_another_page(headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")):
        raise Refused(OTHER_PAGE)


async def _send(text: Iterable[str], can_chunk: bool, writer: asyncio.StreamWriter, turns: Turns | None) -> None:
    pieces: list[bytes] = []
    size_bytes = 0

    async def flush() -> None:
        nonlocal size_bytes
        if pieces:
            writer.writelines([b"%x\r\n" % size_bytes, *pieces, b"\r\n"] if can_chunk else pieces)
            pieces.clear()
            size_bytes = 0
        await writer.drain()
        await asyncio.sleep(0)  # drain returns at once while the socket takes everything; others want their turn

    for line in text:
        if turns is not None and turns.is_over():
            await turns.next()
        if not line:
            continue  # as a chunk it would be the last one
        encoded = line.encode()
        pieces.append(encoded)
        size_bytes += len(encoded)
        if size_bytes >= PIECE_BYTES:
            await flush()
    await flush()
    if can_chunk:
        writer.write(b"0\r\n\r\n")


def _accepted(head: Head) -> bytes:
    framing = "Transfer-Encoding: chunked\r\n" if head.can_chunk else ""
    return f"HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\n{framing}{KEPT_APART}Connection: close\r\n\r\n".encode()


def _refused(refusal: Refusal) -> bytes:
    header = f"{refusal.header}\r\n" if refusal.header else ""
    body = refusal.text.encode()
    head = (
        f"HTTP/1.1 {refusal.status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n{header}Connection: close\r\n\r\n"
    )
    return head.encode() + body
