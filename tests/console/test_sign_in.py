"""Signing in over HTTP: who gets a session, who does not, and what a session may see."""

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.console.connection import MOST_CONNECTIONS
from oncelog.console.serving import Console
from oncelog.embedded import Server
from oncelog.security.documents import Kind
from oncelog.security.failures import Failures
from oncelog.security.operations import Operation, Resource
from oncelog.security.scram import Found
from oncelog.server.users import add_user
from oncelog.server.web_proofs import MOST_AT_ONCE
from oncelog.settings import SettingsError
from tests.client.net.certificates import Authority
from tests.console.conftest import Shown
from tests.raw import RawConnection

PASSWORD = "correct horse"
ALWAYS = {"oncelog_console_tls": "always", "oncelog_console_sign_in": "always"}


@contextmanager
def shown_with(given: dict[str, str] | None = None, **settings: Any) -> Iterator[Shown]:
    with Server(settings=given, **settings) as server:
        found = Shown(server)
        found.run(add_user(server.broker, "alice", PASSWORD))
        yield found
        found.stage.close()


@contextmanager
def serving(shown: Shown, host: str = "127.0.0.1") -> Iterator[Console]:
    console = Console(shown.server.broker, host, 0)
    shown.run(console.start())
    try:
        yield console
    finally:
        shown.run(console.stop())


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    with shown_with(oncelog_console_sign_in="always", connection_failed_authentication_delay_ms=1) as found:
        yield found


@pytest.fixture
def console(shown: Shown) -> Iterator[Console]:
    with serving(shown) as console:
        yield console


class Visitor:
    """One browser, as far as cookies go."""

    def __init__(self, console: Console, tls: ssl.SSLContext | None = None) -> None:
        self._console = console
        self._tls = tls
        self.cookies: dict[str, str] = {}
        self.set_cookie = ""

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        port = self._console.port
        if self._tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=self._tls)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            named["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request("GET" if body is None else "POST", path, body, named)
        answer = connection.getresponse()
        told = answer.read()
        self.set_cookie = answer.headers.get("set-cookie", "")
        for name, morsel in SimpleCookie(self.set_cookie).items():
            self.cookies[name] = morsel.value
        connection.close()
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.status, json.loads(told) if is_json else told

    def post(self, path: str, said: object, **headers: str) -> tuple[int, Any]:
        scheme = "http" if self._tls is None else "https"
        origin = {"Origin": f"{scheme}://127.0.0.1:{self._console.port}", "Content_Type": "application/json", **headers}
        return self.ask(path, json.dumps(said).encode(), **origin)

    def sign_in(self, user: str = "alice", password: str = PASSWORD) -> tuple[int, Any]:
        return self.post("/api/sign-in", {"user": user, "password": password})


def test_without_a_session_nothing_but_the_pages_files_is_there(console: Console) -> None:
    visitor = Visitor(console)
    assert visitor.ask("/")[0] == 200
    for view in ("overview", "topics", "messages?topic=orders", "groups", "sinks", "flows", "faults", "cluster"):
        assert visitor.ask(f"/api/{view}") == (401, {"error": "Sign in first."})
    assert visitor.ask("/api/session") == (200, {"is_asked_for": True, "user": None})


def test_who_signs_in_sees_it_until_signing_out(console: Console) -> None:
    visitor = Visitor(console)
    assert visitor.sign_in() == (200, {"user": "alice"})
    cookie = visitor.set_cookie
    assert all(each in cookie for each in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"))
    assert "Secure" not in cookie and "Domain" not in cookie
    assert visitor.ask("/api/session") == (200, {"is_asked_for": True, "user": "alice"})
    assert visitor.ask("/api/overview")[0] == 200
    before = dict(visitor.cookies)
    assert visitor.post("/api/sign-out", {}) == (200, {"user": None})
    visitor.cookies = before
    assert visitor.ask("/api/overview")[0] == 401


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("", "x"), ("alice", "")])
def test_a_wrong_name_and_a_wrong_password_are_told_alike(console: Console, user: str, password: str) -> None:
    status, told = Visitor(console).sign_in(user, password)
    assert status in (400, 401)
    if user and password:
        assert (status, told) == (401, {"error": "No user has this name and password."})


@pytest.mark.parametrize(("user", "password"), [("\ud800", "x"), ("alice", "\ud800")])
def test_what_is_no_text_is_nobodys(console: Console, user: str, password: str) -> None:
    assert Visitor(console).sign_in(user, password)[0] == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Type": "text/plain"}, 415),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_another_page_can_sign_nobody_in(console: Console, headers: dict[str, str], status: int) -> None:
    visitor = Visitor(console)
    assert visitor.post("/api/sign-in", {"user": "alice", "password": PASSWORD}, **headers)[0] == status
    assert visitor.cookies == {}
    assert visitor.ask("/api/sign-in", b"{}", Content_Type="application/json")[0] == 403


@pytest.mark.parametrize("body", [b"", b"[]", b'{"user": 1, "password": 2}', b"{" * 3000, b" " * 5000])
def test_what_is_no_name_and_password_is_refused(console: Console, body: bytes) -> None:
    origin = {"Origin": f"http://127.0.0.1:{console.port}", "Content_Type": "application/json"}
    assert Visitor(console).ask("/api/sign-in", body, **origin)[0] in (400, 413)


def test_a_session_ends_with_the_password(shown: Shown, console: Console) -> None:
    shown.run(add_user(shown.server.broker, "carol", "one"))
    visitor = Visitor(console)
    visitor.sign_in("carol", "one")
    assert visitor.ask("/api/topics")[0] == 200
    shown.run(add_user(shown.server.broker, "carol", "two"))
    assert visitor.ask("/api/topics")[0] == 401


def test_a_password_that_changes_while_it_is_looked_at_opens_nothing(
    shown: Shown, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, run = shown.server.broker, shown.server.broker.proofs.run
    shown.run(add_user(broker, "dave", "one"))

    async def run_and_change(*given: Any) -> Any:
        is_right = await run(*given)
        await add_user(broker, "dave", "two")
        return is_right

    monkeypatch.setattr(broker.proofs, "run", run_and_change)
    visitor = Visitor(console)
    assert visitor.sign_in("dave", "one") == (200, {"user": "dave"})
    assert visitor.ask("/api/topics")[0] == 401


def test_who_sends_a_password_slowly_keeps_nobody_out(console: Console) -> None:
    head = (
        f"POST /api/sign-in HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nOrigin: http://127.0.0.1:{console.port}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with ExitStack() as stack:
        for _ in range(MOST_AT_ONCE):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", console.port)))
            slow.sendall(head.encode())
        for _ in range(3):  # by now all of them have been heard
            assert Visitor(console).ask("/api/session")[0] == 200
        assert Visitor(console).sign_in() == (200, {"user": "alice"})


def test_guessing_is_late_and_ends(tmp_path: Path) -> None:
    with (
        shown_with(
            oncelog_console_sign_in="always",
            oncelog_max_failed_authentications_per_minute=3,
            connection_failed_authentication_delay_ms=1,
        ) as shown,
        serving(shown) as console,
    ):
        assert [Visitor(console).sign_in(password="guess")[0] for _ in range(4)] == [401, 401, 401, 429]
        assert Visitor(console).sign_in()[0] == 429
        assert shown.server.broker.metrics.authentications_failed == 3
        guard = shown.server.service.connections.guard
        assert shown.server.call(lambda: guard.is_barred("127.0.0.1")), "by its listeners, too"


def test_a_failure_is_answered_when_its_time_has_come(
    shown: Shown, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server waits for the rest of the delay, whatever the proof has taken of it."""
    broker, clock, waits = shown.server.broker, ManualClock(), list[float]()
    looks = broker.passwords.look

    async def look(name: str, password: str) -> tuple[bool, Found]:
        clock.advance(3_000)
        return await looks(name, password)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(broker, "clock", clock)
    monkeypatch.setattr(broker, "failures", Failures(60))  # those of tests before were noted by another clock
    monkeypatch.setattr(broker.passwords, "look", look)
    monkeypatch.setattr("oncelog.server.web_proofs.asyncio", SimpleNamespace(sleep=sleep))  # all others must sleep
    monkeypatch.setattr(broker.settings, "connection_failed_authentication_delay_ms", 10_000)
    assert Visitor(console).sign_in(password="guess")[0] == 401
    assert waits == [7]


def test_no_more_sign_in_at_a_time_than_can_be_looked_at(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Visitor(console).sign_in()[0] == 200
    monkeypatch.setattr("oncelog.server.web_proofs.MOST_AT_ONCE", 0)
    assert Visitor(console).sign_in(password="guess") == (503, {"error": "Too many are signing in: try again."})
    assert Visitor(console).sign_in()[0] == 200, "it was right before, and is not looked at again"


# Rights


class Few:
    def __init__(self, *allowed: tuple[Operation, Resource, str]) -> None:
        self._allowed = allowed

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return (operation, resource, name) in self._allowed


SEES = (Operation.DESCRIBE, Resource.TOPIC, "seen")
READS = (Operation.READ, Resource.TOPIC, "seen")


@pytest.fixture
def visitor_with(shown: Shown, console: Console, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Visitor]:
    def made(*allowed: tuple[Operation, Resource, str]) -> Visitor:
        asked: list[tuple[str, str]] = []

        def rights(principal: str, host: str) -> Few:
            asked.append((principal, host))
            return Few(*allowed)

        monkeypatch.setattr(shown.server.broker.access, "rights", rights)
        visitor = Visitor(console)
        visitor.sign_in()
        visitor.ask("/api/topics")
        assert ("User:alice", "127.0.0.1") in asked
        return visitor

    with RawConnection(shown.server.bootstrap_servers) as raw:
        for name in ("seen", "hidden", "oncelog.sink.hidden", "oncelog.flow.hidden"):
            if shown.server.broker.topics.get(name) is None:
                raw.create_topic(name)
    return made


def test_lists_name_what_the_user_may_see(visitor_with: Callable[..., Visitor]) -> None:
    visitor = visitor_with(SEES)
    assert [each["name"] for each in visitor.ask("/api/topics")[1]["topics"]] == ["seen"]
    assert visitor.ask("/api/sinks")[1]["sinks"] == visitor.ask("/api/flows")[1]["flows"] == []
    assert visitor.ask("/api/groups")[1]["groups"] == visitor.ask("/api/producers")[1]["rows"] == []


@pytest.mark.parametrize(
    "path",
    [
        "overview",
        "cluster",
        "faults",
        "topic?topic=hidden",
        "topic?topic=not-there",
        "messages?topic=hidden",
        "messages?topic=seen",
        "message?topic=seen&offset=0",
        "partition-producers?topic=seen",
        "sink?topic=oncelog.sink.hidden",
        "flow?topic=oncelog.flow.hidden",
        "group?group=any",
    ],
)
def test_what_the_user_may_not_see_is_not_told_from_what_is_not_there(
    visitor_with: Callable[..., Visitor], path: str
) -> None:
    status, told = visitor_with(SEES).ask(f"/api/{path}")
    assert status == 403
    assert "This takes the right to" in told["error"]


def test_to_read_messages_is_a_right_of_its_own(visitor_with: Callable[..., Visitor]) -> None:
    visitor = visitor_with(SEES, READS)
    assert visitor.ask("/api/topic?topic=seen")[0] == visitor.ask("/api/messages?topic=seen")[0] == 200
    assert visitor.ask("/api/partition-producers?topic=seen")[0] == 200


# TLS, and where the page is


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def keystore(authority: Authority, folder: Path) -> dict[str, str]:
    server = authority.signs("server")
    path = folder / "server.pem"
    path.write_text(Path(server.certificate).read_text() + Path(server.key).read_text())
    return {"ssl.keystore.location": str(path)}


def test_by_tls_the_cookie_is_for_tls_alone(authority: Authority, tmp_path: Path) -> None:
    with shown_with(keystore(authority, tmp_path), **ALWAYS) as shown, serving(shown) as console:
        assert console.address == f"https://127.0.0.1:{console.port}/"
        visitor = Visitor(console, ssl.create_default_context(cafile=authority.certificate))
        assert visitor.sign_in()[0] == 200
        assert visitor.set_cookie.startswith("__Host-oncelog-")
        assert "Secure" in visitor.set_cookie
        assert visitor.ask("/api/overview")[0] == 200
        with pytest.raises(OSError, match=r"reset|closed|Remote"):
            Visitor(console).ask("/")


def test_idle_connections_shut_nobody_out_of_a_page_with_tls(authority: Authority, tmp_path: Path) -> None:
    with shown_with(keystore(authority, tmp_path), **ALWAYS) as shown, serving(shown) as console:
        idle = [socket.create_connection(("127.0.0.1", console.port), timeout=30) for _ in range(300)]
        visitor = Visitor(console, ssl.create_default_context(cafile=authority.certificate))
        assert visitor.sign_in()[0] == 200
        assert visitor.ask("/api/topics")[0] == 200
        assert len(console.connections) <= MOST_CONNECTIONS
        for each in idle:
            each.close()


def test_beyond_loopback_it_starts_with_users_and_tls_alone(authority: Authority, tmp_path: Path) -> None:
    with Server() as server, pytest.raises(SettingsError, match=r"a certificate, ssl\.keystore\.location"):
        Console(server.broker, "0.0.0.0", 0)
    with Server(settings=keystore(authority, tmp_path)) as server:
        found = Shown(server)
        with pytest.raises(SettingsError, match="there are no users: make one with `oncelog users add NAME`"):
            found.run(Console(server.broker, "0.0.0.0", 0).start())
        found.run(add_user(server.broker, "alice", PASSWORD))
        with serving(found, "0.0.0.0") as console:
            visitor = Visitor(console, ssl.create_default_context(cafile=authority.certificate))
            assert visitor.ask("/api/topics")[0] == 401
            assert visitor.sign_in()[0] == 200
        found.stage.close()


def test_never_is_for_the_loopback_address(authority: Authority, tmp_path: Path) -> None:
    with shown_with(keystore(authority, tmp_path), oncelog_console_sign_in="never") as shown:
        with pytest.raises(SettingsError, match=r"oncelog\.console\.sign\.in=never is for 127\.0\.0\.1 alone"):
            shown.run(Console(shown.server.broker, "0.0.0.0", 0).start())
        with serving(shown) as console:
            assert Visitor(console).ask("/api/overview")[0] == 200


def test_where_listeners_ask_nobody_the_page_asks_nobody() -> None:
    with shown_with() as shown, serving(shown) as console:
        assert Visitor(console).ask("/api/overview")[0] == 200
        assert Visitor(console).ask("/api/session") == (200, {"is_asked_for": False, "user": None})


def test_where_listeners_ask_the_page_asks_too() -> None:
    with Server(
        listeners="SASL_PLAINTEXT://127.0.0.1:0", listener_security_protocol_map="SASL_PLAINTEXT:SASL_PLAINTEXT"
    ) as server:
        found = Shown.__new__(Shown)
        found.server = server
        found.run(add_user(server.broker, "alice", PASSWORD))
        with serving(found) as console:
            assert Visitor(console).ask("/api/overview")[0] == 401


def test_no_password_is_kept_or_told(shown: Shown, console: Console, caplog: pytest.LogCaptureFixture) -> None:
    Visitor(console).sign_in(password="my secret guess")
    assert "my secret guess" not in caplog.text
    assert PASSWORD not in str(shown.server.broker.topics.document(Kind.USERS))


def test_access_rules_are_those_of_the_log() -> None:
    given = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
    with Server(settings=given) as server:
        found = Shown.__new__(Shown)
        found.server = server
        found.run(add_user(server.broker, "alice", PASSWORD))
        found.run(add_user(server.broker, "root", PASSWORD))
        with serving(found) as console:
            told = {}
            for user in ("alice", "root"):
                visitor = Visitor(console)
                visitor.sign_in(user)
                told[user] = [visitor.ask(f"/api/{view}")[0] for view in ("overview", "topics", "topic?topic=none")]
    assert told == {"alice": [403, 200, 403], "root": [200, 200, 404]}
