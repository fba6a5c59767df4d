"""The page over HTTP: its files, what goes along with every answer, and who is turned away."""

import asyncio
import http.client
import json
import re
import socket
import urllib.request
from contextlib import suppress
from importlib.resources import files
from typing import Any

import pytest

from oncelog.console import connection
from oncelog.console.connection import MOST_CONNECTIONS, MOST_OPEN
from oncelog.console.guard import HEADERS
from oncelog.console.serving import Console
from oncelog.console.web import KINDS
from oncelog.settings import SettingsError
from tests.console.conftest import Shown

STATIC = files("oncelog.console") / "static"
VIEWS = ("overview", "topics", "producers", "groups", "sinks", "faults")


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
    assert ask(console, "/api/topics", method).status == 405


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/static/..%2fserving.py", 404),
        ("/static/../serving.py", 404),
        ("/api/topic?topic=nowhere", 404),
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


def test_too_many_at_a_time_are_told_so(console: Console, caplog: pytest.LogCaptureFixture) -> None:
    waiting = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(MOST_CONNECTIONS)]
    try:
        assert ask(console, "/api/overview").status == 503
        assert caplog.text == "", "and not the server's log, which anyone could fill so"
    finally:
        for each in waiting:
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


def test_who_asks_again_is_answered_for_as_long_as_that(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    look = connection.Connection.end_if_silent

    def counted(self: connection.Connection) -> None:
        looks.append(self)
        look(self)

    monkeypatch.setattr(connection, "PATIENCE_S", 0.5)
    monkeypatch.setattr(connection.Connection, "end_if_silent", counted)
    page = http.client.HTTPConnection("127.0.0.1", console.port, timeout=30)
    page.connect()
    kept = page.sock
    while len(looks) < 2:
        page.request("GET", "/api/faults")
        assert page.getresponse().read()
        assert page.sock is kept
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


@pytest.mark.parametrize("host", ["", "0.0.0.0", "localhost", "127.0.0.1"])
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
