"""The page over HTTP: its files, what goes along with every answer, and who is turned away."""

import asyncio
import http.client
import json
import re
import socket
import struct
import urllib.request
from contextlib import suppress
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.console import connection, overview, web
from oncelog.console.connection import (
    MOST_CONNECTIONS,
    MOST_OPEN,
    MOST_REQUEST_BYTES,
    MOST_REQUEST_LINES,
    TOO_MANY,
    TOO_MUCH,
)
from oncelog.console.faults import FaultList
from oncelog.console.guard import HEADERS
from oncelog.console.serving import Console
from oncelog.console.sign_in import SignIn
from oncelog.console.web import KINDS
from oncelog.server.turns import Turns
from oncelog.settings import SettingsError
from tests.console.conftest import Shown
from tests.logged import messages
from tests.waiting import until

STATIC = files("oncelog.console") / "static"
VIEWS = ("cluster", "overview", "topics", "producers", "groups", "sinks", "flows", "faults")


class Answer:
    def __init__(self, found: http.client.HTTPResponse) -> None:
        self.status = found.status
        self.headers = found.headers
        self.body = found.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(console: Console, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return Answer(connection.getresponse())
    finally:
        connection.close()


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_json(console: Console, view: str) -> None:
    found = ask(console, f"/api/{view}")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    assert found.headers["cache-control"] == "no-store"
    assert isinstance(found.json, dict)


def test_all_that_the_page_loads_is_there_and_from_here(console: Console) -> None:
    seen, wanted = set[str](), {"/"}
    while wanted:
        path = wanted.pop()
        seen.add(path)
        found = ask(console, path)
        assert found.status == 200, path
        text = found.body.decode()
        assert not re.search(r"\b(https?:)?//(?!www\.w3\.org/)[a-z]", text), f"{path} names another place"
        named = re.findall(r'(?:href|src)="(/[^"]*)"', text) + re.findall(r'url\(["\']?([^)"\']+)', text)
        named += [f"/static/{name}" for name in re.findall(r'from "\./([^"]+)"', text)]
        wanted |= set(named) - seen
    packaged = {each.name for each in STATIC.iterdir()}
    assert {name.removeprefix("/static/") for name in seen - {"/"}} | {"index.html"} == packaged


def test_nothing_is_put_into_the_page_as_markup() -> None:
    for file in STATIC.iterdir():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bon\w+=|style=",
            file.read_text(encoding="utf-8"),
        )
        assert not found, f"{file.name}: {found}"


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/overview", "/api/topic?topic=nowhere", "/nowhere"])
def test_the_policy_goes_along_with_every_answer(console: Console, path: str) -> None:
    found = ask(console, path)
    for name, value in HEADERS:
        assert found.headers[name.decode()] == value.decode()
    assert "server" not in found.headers


def test_files_are_asked_for_again_and_sent_only_when_they_have_changed(console: Console) -> None:
    first = ask(console, "/static/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = ask(console, "/static/main.js", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(console: Console, method: str) -> None:
    assert ask(console, "/api/topics", method).status == 403
    assert ask(console, "/api/topics", method, Origin=f"http://127.0.0.1:{console.port}").status == 405


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/static/..%2fserving.py", 404),
        ("/static/../serving.py", 404),
        ("/api/topic?topic=nowhere", 404),
        ("/api/topic", 400),
        ("/api/topic?topic=", 400),
        ("/api/group?group=nobody", 404),
        ("/api/topics?start=-1", 400),
        ("/api/topics?start=" + "9" * 30, 400),
        ("/api/messages?topic=nowhere&partition=%00", 404),
    ],
)
def test_what_is_not_there_is_told_without_a_trace(console: Console, path: str, status: int) -> None:
    found = ask(console, path)
    assert found.status == status
    assert b"Traceback" not in found.body


def test_a_name_that_is_not_the_pages_own_is_turned_away(console: Console) -> None:
    """As after DNS rebinding."""
    assert ask(console, "/api/overview", Host="evil.example").status == 403
    assert ask(console, "/", Host="evil.example").status == 403
    assert ask(console, "/", Host=f"localhost:{console.port}").status == 200


def test_another_page_in_the_same_browser_is_turned_away(console: Console) -> None:
    assert ask(console, "/api/overview", Origin="http://evil.example").status == 403
    assert ask(console, "/api/overview", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert ask(console, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200


@pytest.mark.parametrize("rest", [b"X: y\r\n" * MOST_REQUEST_LINES, b"X: " + b"y" * MOST_REQUEST_BYTES])
def test_a_head_that_would_take_long_to_parse_is_refused_before(console: Console, rest: bytes) -> None:
    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as asking, suppress(ConnectionResetError):
        asking.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + rest + b"\r\n\r\n")
        answer = asking.makefile("rb").read()
        assert answer == b"" or (answer.startswith(b"HTTP/1.1 400 ") and answer.endswith(TOO_MUCH.encode())), answer


def test_a_query_of_many_fields_is_refused_before_it_is_read(console: Console) -> None:
    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as asking, suppress(ConnectionResetError):
        asking.sendall(b"GET /api/topics?" + b"a=b&" * MOST_REQUEST_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asking.recv(100).startswith((b"HTTP/1.1 400 ", b""))


@pytest.mark.parametrize("path", [b"/", b"/api/faults"])
def test_a_body_in_crumbs_costs_the_connection(console: Console, path: bytes) -> None:
    """Each takes as long to take apart as a request."""
    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as asking, suppress(OSError):
        asking.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100_000):
            asking.sendall(b"1\r\nx\r\n" * MOST_REQUEST_LINES)
        raise AssertionError("the page takes them all")


def test_requests_are_parsed_when_long_work_has_its_turn(
    shown: Shown, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, waiting = shown.server.broker.turns, list[Any]()
    wait = turns.wait

    def noted(callback: Any) -> None:
        is_asking = isinstance(getattr(callback, "__self__", None), connection.Connection)
        (waiting.append if is_asking else wait)(callback)  # what a server does now and then takes turns, too

    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as asking:
        with monkeypatch.context() as patch:
            patch.setattr(turns, "is_over", lambda: True)
            patch.setattr(turns, "wait", noted)
            asking.sendall(b"GET / HTTP/1.1\r\n")
            until(lambda: waiting, "the request to wait for its turn")
            asking.sendall(b"Host: localhost\r\n\r\n")
        (read,) = waiting
        shown.server.call(read)
        assert asking.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_connection_that_is_reset_leaves_nothing_behind(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn's timer would keep it."""
    left: list[object] = []
    lost = connection.Connection.connection_lost

    def noted(self: connection.Connection, error: Exception | None) -> None:
        lost(self, error)
        left.append(self.timeout_keep_alive_task)

    monkeypatch.setattr(connection.Connection, "connection_lost", noted)
    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as asking:
        asking.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asking.recv(100)
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: left, "its end")
    assert set(left) == {None}


class Asked:
    """A request that needs no socket."""

    def __init__(self, path: str, is_gone: bool = False) -> None:
        self._scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "root_path": ""}
        self._scope["headers"] = [(b"host", b"localhost")]
        self._is_gone = is_gone
        self.status = 0

    async def receive(self) -> Any:
        return {"type": "http.disconnect"} if self._is_gone else {"type": "http.request", "body": b""}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)

    async def of(self, app: Any) -> int:
        await app(self._scope, self.receive, self.send)
        return self.status


async def test_one_look_is_made_after_the_other_and_none_for_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one holds and computes is bounded, and so is what all do."""
    looking = made = 0

    async def look(*about: object) -> dict[str, Any]:
        nonlocal looking, made
        looking, made = looking + 1, made + 1
        await asyncio.sleep(0)
        assert looking == 1
        looking -= 1
        return {}

    monkeypatch.setattr(overview, "overview", look)
    broker: Any = SimpleNamespace(
        turns=Turns(lambda: 0),
        clock=ManualClock(),
        settings=SimpleNamespace(oncelog_max_failed_authentications_per_minute=1),
    )
    sign_in = SignIn(broker, is_asked_for=False, is_encrypted=False)
    app = web.application(broker, FaultList(), sign_in, ())
    asked = [Asked("/api/overview", is_gone=number == 2) for number in range(5)]
    statuses = await asyncio.gather(*(each.of(app) for each in asked))
    assert (statuses[0], statuses[4], made) == (200, 200, 4)


def test_too_many_at_a_time_are_told_so(
    console: Console, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SILENT_S", 1e9)
    waiting = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(MOST_CONNECTIONS)]
    try:
        found = ask(console, "/api/overview")
        assert (found.status, found.body.decode()) == (503, TOO_MANY + "\n")
        assert messages(caplog, "oncelog.console", "oncelog.metrics", "uvicorn", "asyncio") == [], (
            "and not the server's log, which anyone could fill so"
        )
    finally:
        for each in waiting:
            each.close()


def test_the_connection_that_has_been_silent_for_longest_makes_room(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SILENT_S", 0)
    page = http.client.HTTPConnection("127.0.0.1", console.port, timeout=30)
    page.connect()
    silent = []
    try:
        for _ in range(MOST_CONNECTIONS - 1):
            silent.append(socket.create_connection(("127.0.0.1", console.port), timeout=30))
        until(lambda: len(console.connections) == MOST_CONNECTIONS, "all of them to be there")
        page.request("GET", "/api/faults")  # it came first, and has asked last
        assert page.getresponse().read()
        kept = page.sock
        assert ask(console, "/api/overview").status == 200
        with suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""
        page.request("GET", "/api/faults")
        assert page.getresponse().read() and page.sock is kept
    finally:
        page.close()
        for each in silent:
            each.close()


def test_who_asks_by_all_connections_loses_some_to_hosts_that_have_fewer(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SILENT_S", 1e9)
    greedy = [socket.create_connection(("127.0.0.1", console.port), timeout=30) for _ in range(MOST_CONNECTIONS)]
    try:
        until(lambda: len(console.connections) == MOST_CONNECTIONS, "all of them to be there")
        other = http.client.HTTPConnection("127.0.0.1", console.port, timeout=30, source_address=("127.0.0.2", 0))
        other.request("GET", "/api/overview")
        assert other.getresponse().status == 200
        other.close()
        with suppress(ConnectionResetError):
            assert greedy[0].recv(1) == b""
    finally:
        for each in greedy:
            each.close()


def test_a_request_that_does_not_end_is_refused(console: Console) -> None:
    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as endless:
        with suppress(OSError):  # it may have hung up before all is sent
            for _ in range(100):
                endless.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
        with suppress(ConnectionResetError):
            assert endless.recv(100).startswith((b"HTTP/1.1 400", b""))
    assert ask(console, "/api/overview").status == 200


def test_more_connections_than_that_are_not_kept(console: Console) -> None:
    """Each would take one of the files that the log's clients need."""
    waiting = [socket.create_connection(("127.0.0.1", console.port), timeout=30) for _ in range(MOST_OPEN)]
    try:
        with socket.create_connection(("127.0.0.1", console.port), timeout=30) as last, suppress(ConnectionResetError):
            assert last.recv(1) == b"", "it is closed"
    finally:
        for each in waiting:
            each.close()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"GET / HTTP/1.0\r\n"])
def test_who_says_nothing_new_is_hung_up_on(console: Console, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(connection, "PATIENCE_S", 0.05)
    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as silent, suppress(ConnectionResetError):
        silent.sendall(said)
        assert silent.recv(1) == b""


def test_who_asks_again_is_answered_for_as_long_as_that(
    shown: Shown, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks are made here, so that no busy machine makes a page late for one."""
    looked_at: list[connection.Connection] = []
    received = connection.Connection.data_received

    def noted(self: connection.Connection, data: bytes) -> None:
        looked_at.append(self)
        received(self, data)

    monkeypatch.setattr(connection, "PATIENCE_S", 3600)
    monkeypatch.setattr(connection.Connection, "data_received", noted)
    page = http.client.HTTPConnection("127.0.0.1", console.port, timeout=30)
    page.connect()
    kept = page.sock
    for _ in range(3):
        page.request("GET", "/api/faults")
        assert page.getresponse().read()
        assert page.sock is kept
        shown.server.call(looked_at[-1].end_if_silent)
    shown.server.call(looked_at[-1].end_if_silent)  # nothing new was asked since
    assert kept.recv(1) == b""
    page.close()


def test_while_nobody_looks_nothing_runs(shown: Shown) -> None:
    async def tasks() -> tuple[set[Any], set[Any]]:
        before = asyncio.all_tasks()
        console = Console(shown.server.broker, "127.0.0.1", 0)
        await console.start()
        during = asyncio.all_tasks()
        await console.stop()
        return before, during

    before, during = shown.run(tasks())
    assert before == during


def test_a_port_that_is_taken_is_told(shown: Shown, console: Console) -> None:
    async def second() -> None:
        await Console(shown.server.broker, "127.0.0.1", console.port).start()

    with pytest.raises(SettingsError, match=rf"cannot serve the page on 127\.0\.0\.1:{console.port}: "):
        shown.run(second())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_page_is_found_where_it_says_that_it_is(shown: Shown, host: str) -> None:
    console = Console(shown.server.broker, host, 0)
    shown.run(console.start())
    try:
        with urllib.request.urlopen(console.address, timeout=30) as answer:
            assert b"<title>oncelog</title>" in answer.read()
    finally:
        shown.run(console.stop())


def test_every_kind_of_file_has_its_type() -> None:
    assert {each.name[each.name.rfind(".") :] for each in STATIC.iterdir()} <= KINDS.keys()
