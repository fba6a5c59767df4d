"""Who may scrape the metrics, and what they see."""

import http.client
import shlex
import socket
import ssl
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner

import oncelog
from oncelog.chaos.life import Life
from oncelog.cli import main, users
from oncelog.embedded import Server
from oncelog.metrics.http import MAX_OPEN
from oncelog.security.bindings import Binding, Pattern, Permission
from oncelog.security.documents import Document, Kind
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.broker import Broker
from oncelog.server.metrics_port import HANDSHAKES
from oncelog.server.users import add_user
from oncelog.settings import SettingsError
from tests.client.net.certificates import Authority
from tests.raw import RawConnection
from tests.repo.tree import ROOT
from tests.server.jwks import AUDIENCE, Issuer
from tests.waiting import until

PASSWORD = "correct: horse"
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
QUICK = {"connection.failed.authentication.delay.ms": "1"}
SIGNS_IN = {"oncelog.metrics.sign.in": "always", **QUICK}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def keystore(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    server = authority.signs("server")
    path = tmp_path_factory.mktemp("keystore") / "server.pem"
    path.write_text(Path(server.certificate).read_text() + Path(server.key).read_text())
    return {"ssl.keystore.location": str(path)}


@contextmanager
def scraped(settings: dict[str, str], host: str = "127.0.0.1") -> Iterator[Server]:
    with Server(settings={"oncelog.metrics.listener": f"{host}:0", **settings}) as server:
        yield server


def with_users(server: Server, *names: str) -> None:
    for name in names:
        server.call(lambda name=name: add_user(server.broker, name, PASSWORD))


def basic(user: str, password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def ask(server: Server, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None) -> Any:
    """The status, what was told, and the headers."""
    return ask_port(server.service.metrics_port or 0, headers, tls)


def ask_port(port: int, headers: dict[str, str] | None, tls: ssl.SSLContext | None) -> Any:
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=tls)
    try:
        connection.request("GET", "/metrics", headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def status(server: Server, *given: Any) -> int:
    found: int = ask(server, *given)[0]
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with scraped(SIGNS_IN) as server:
        with_users(server, "alice")
        yield server


def test_on_loopback_where_listeners_ask_nobody_it_asks_nobody() -> None:
    with scraped({}) as server:
        assert status(server) == 200


@pytest.mark.parametrize(("wanted", "found"), [("required", 401), ("requested", 200)])
def test_where_nobody_gets_in_without_a_certificate_it_asks_too(
    wanted: str, found: int, keystore: dict[str, str], authority: Authority
) -> None:
    wants = {"listeners": "SSL://127.0.0.1:0", "ssl.client.auth": wanted}
    with scraped({**wants, **keystore, "ssl.truststore.location": authority.certificate}) as server:
        assert status(server) == found


def test_who_says_nothing_is_asked_and_has_not_failed(server: Server) -> None:
    before = server.broker.metrics.authentications_failed
    found, text, headers = ask(server)
    assert (found, headers["WWW-Authenticate"]) == (401, 'Basic realm="oncelog", charset="UTF-8"')
    assert "kafka_" not in text
    assert server.broker.metrics.authentications_failed == before


def test_a_user_of_the_log_gets_the_metrics(server: Server) -> None:
    found, text, _ = ask(server, basic("alice"))
    assert found == 200
    assert "\nkafka_brokers 1\n" in text


def test_a_wrong_name_and_a_wrong_password_are_told_alike(server: Server) -> None:
    wrong = [ask(server, basic("alice", "guess")), ask(server, basic("nobody"))]
    assert [each[0] for each in wrong] == [401, 401]
    assert wrong[0][1] == wrong[1][1] == "No user has this name and password.\n"


@pytest.mark.parametrize(
    "said",
    ["Basic", "Basic !", "Basic YWxpY2U=", "Bearer YWxpY2U6eA==", "Basic OmFsaWNl", "Basic /////w==", "x" * 4000],
)
def test_what_is_no_name_and_password_is_refused(server: Server, said: str) -> None:
    assert status(server, {"Authorization": said}) == 401


def test_one_header_too_many_is_no_way_in(server: Server) -> None:
    good = basic("alice")["Authorization"]
    for said in (f"Basic x,{good}", f"{good},{good}"):
        assert status(server, {"Authorization": said}) == 401


def test_another_page_of_a_browser_that_has_signed_in_is_refused(server: Server) -> None:
    for site in ("cross-site", "same-site"):
        ridden = {**basic("alice"), "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert status(server, ridden) == 403
    assert status(server, {**basic("alice"), "Host": "evil.example"}) == 403
    assert status(server, {**basic("alice"), "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}) == 200


def test_guesses_count_together_with_those_at_listeners() -> None:
    with scraped({**SIGNS_IN, "oncelog.max.failed.authentications.per.minute": "3"}) as server:
        with_users(server, "alice")
        assert [status(server, basic("alice", "guess")) for _ in range(4)] == [401, 401, 401, 429]
        assert status(server, basic("alice")) == 429
        assert server.call(lambda: server.service.connections.guard.is_barred("127.0.0.1"))


def test_a_password_that_is_changed_counts_at_the_next_scrape(server: Server) -> None:
    with_users(server, "carol")
    assert status(server, basic("carol")) == 200
    server.call(lambda: add_user(server.broker, "carol", "another"))
    assert status(server, basic("carol")) == 401


@pytest.fixture
def slow() -> Iterator[Server]:
    """Failures are answered late, and another guess is being waited for."""
    with scraped({**SIGNS_IN, "connection.failed.authentication.delay.ms": "10000"}) as server:
        with_users(server, "alice", "bob")
        assert status(server, basic("bob")) == 200
        with socket.create_connection(("127.0.0.1", server.service.metrics_port or 0)) as guesser:
            guess = basic("alice", "guess")["Authorization"]
            guesser.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: {guess}\r\n\r\n".encode())
            until(lambda: server.broker.metrics.authentications_failed, "the guess has been looked at")
            yield server


def test_no_more_guesses_are_answered_late_at_a_time_than_there_is_room_for(
    slow: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.server.web_proofs.MOST_AT_ONCE", 1)
    assert status(slow, basic("bob", "guess")) == 503
    assert slow.broker.metrics.authentications_failed == 2, "it counts"


def test_a_guess_that_is_answered_late_keeps_no_proof_waiting(slow: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.server.web_proofs.MOST_AT_ONCE", 1)
    assert status(slow) == 401
    assert status(slow, basic("alice")) == 200


def test_no_more_proofs_are_looked_at_a_time_than_there_is_room_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_users(server, "dora", "emil")
    assert status(server, basic("dora")) == 200
    monkeypatch.setattr("oncelog.server.web_proofs.MOST_AT_ONCE", 0)
    assert status(server, basic("emil")) == 503
    assert status(server, basic("dora")) == 200, "who has proven it before waits for nobody"


# Rights


async def added(broker: Broker, key: str) -> None:
    def change(document: Document) -> Document:
        return {**document, key: {}}

    await broker.turns.run(broker.topics.changing_document(Kind.ACLS, change, broker.clock.now()))


def allow(server: Server, user: str, *rules: tuple[Operation, Resource, str]) -> None:
    for operation, resource, name in rules:
        rule = Binding(resource, Pattern.LITERAL, name, f"User:{user}", "*", operation, Permission.ALLOW)
        server.call(added, server.broker, rule.key)


def test_a_user_sees_what_it_may_describe() -> None:
    with scraped({**AUTHORIZER, **QUICK, "super.users": "User:root;User:ANONYMOUS"}) as server:
        with_users(server, "root", "alice", "bob", "zoë")
        with RawConnection(server.bootstrap_servers) as raw:
            for name in ("seen", "hidden"):
                raw.create_topic(name)
        found, text, _ = ask(server, basic("alice"))
        assert found == 403
        assert "--allow-principal 'User:alice' --operation Describe --cluster" in text
        describe = Operation.DESCRIBE
        allow(server, "alice", (describe, Resource.CLUSTER, CLUSTER_NAME), (describe, Resource.TOPIC, "seen"))
        told = ask(server, basic("alice"))[1]
        assert 'topic="seen"' in told and "hidden" not in told
        assert "\nkafka_brokers 1\n" in told
        assert 'topic="hidden"' in ask(server, basic("root"))[1]
        assert status(server, basic("bob")) == 403
        assert ask(server, basic("zoë"))[1].endswith("'User:zoë' --operation Describe --cluster\n"), "told to the end"


# Tokens


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    found = Issuer(tmp_path_factory.mktemp("issuer") / "keys.json")
    found.new_key("one")
    found.publish()
    return found


def by_tokens(issuer: Issuer) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,PASSWORDS://127.0.0.1:0,TOKENS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PASSWORDS:SASL_PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "listener.name.tokens.sasl.oauthbearer.expected.audience": AUDIENCE,
        "oncelog.sasl.without.tls": "true",
        **QUICK,
    }


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def tokened(issuer: Issuer) -> Iterator[Server]:
    with scraped(by_tokens(issuer)) as server:
        with_users(server, "alice")
        yield server


def test_who_shows_a_token_that_a_listener_would_take_gets_the_metrics(tokened: Server, issuer: Issuer) -> None:
    found, text, _ = ask(tokened, bearer(issuer.token("one")))
    assert found == 200
    assert "\nkafka_brokers 1\n" in text
    assert status(tokened, basic("alice")) == 200


def test_who_says_nothing_is_told_that_there_are_tokens(tokened: Server) -> None:
    found, text, headers = ask(tokened)
    assert found == 401
    assert headers.get_all("WWW-Authenticate") == [
        'Basic realm="oncelog", charset="UTF-8"',
        'Bearer realm="oncelog"',
    ]
    assert "or show a token" in text


def test_a_token_that_does_not_count_is_refused_and_nobody_is_told_why_but_the_log(
    tokened: Server, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    good, before = issuer.token("one"), tokened.broker.metrics.authentications_failed
    bad = [issuer.token("one", exp=1), issuer.token("one", aud="others"), f"{good[:-8]}AAAAAAAA", "x.y.z", "x" * 4000]
    told = [ask(tokened, bearer(token)) for token in bad]
    assert [(found, text) for found, text, _ in told] == [(401, "This token does not count.\n")] * len(bad)
    assert tokened.broker.metrics.authentications_failed == before + len(bad)
    assert "127.0.0.1 did not prove to /metrics who it is: a token that does not count: Expired" in caplog.text
    assert not any(part in caplog.text for token in bad[:3] for part in token.split("."))


def test_where_no_listener_takes_tokens_none_counts(server: Server, issuer: Issuer) -> None:
    assert status(server, bearer(issuer.token("one"))) == 401
    assert "WWW-Authenticate: Bearer" not in str(ask(server)[2])


def test_bad_tokens_count_together_with_wrong_passwords(issuer: Issuer) -> None:
    with scraped({**by_tokens(issuer), "oncelog.max.failed.authentications.per.minute": "3"}) as server:
        bad = [bearer("x.y.z"), basic("nobody"), bearer(issuer.token("one", exp=1)), bearer("x.y.z")]
        assert [status(server, each) for each in bad] == [401, 401, 401, 429]
        assert status(server, bearer(issuer.token("one"))) == 429
        assert server.call(lambda: server.service.connections.guard.is_barred("127.0.0.1"))


def test_no_more_tokens_are_looked_at_a_time_than_there_is_room_for(
    tokened: Server, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, new = bearer(issuer.token("one", jti="known")), bearer(issuer.token("one", jti="new"))
    assert status(tokened, known) == 200
    monkeypatch.setattr("oncelog.server.web_proofs.MOST_AT_ONCE", 0)
    assert status(tokened, new) == 503
    assert status(tokened, known) == 200, "who has proven it before waits for nobody"


def test_whom_a_token_names_sees_what_that_user_may_describe(issuer: Issuer) -> None:
    with scraped({**AUTHORIZER, **by_tokens(issuer), "super.users": "User:root"}) as server:
        found, text, _ = ask(server, bearer(issuer.token("one")))
        assert found == 403 and "--allow-principal 'User:ann' --operation Describe --cluster" in text
        assert status(server, bearer(issuer.token("one", sub="root"))) == 200
        allow(server, "ann", (Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME))
        assert status(server, bearer(issuer.token("one"))) == 200


def test_beyond_loopback_tokens_are_a_way_in_without_users(
    authority: Authority, keystore: dict[str, str], issuer: Issuer
) -> None:
    with scraped({**keystore, **by_tokens(issuer)}, "0.0.0.0") as server:
        trusting = ssl.create_default_context(cafile=authority.certificate)
        assert [status(server, given, trusting) for given in (None, bearer(issuer.token("one")))] == [401, 200]


# TLS, and where it is


def test_beyond_loopback_it_starts_with_users_and_tls_alone(
    authority: Authority, keystore: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"oncelog\.metrics\.listener=0\.0\.0\.0:0: .* a certificate"):
        scraped({}, "0.0.0.0").__enter__()
    beyond = {**keystore, "log.dir": str(tmp_path / "data")}
    with pytest.raises(SettingsError, match=r"oncelog\.metrics\.listener=0\.0\.0\.0:0: nobody could sign in"):
        scraped(beyond, "0.0.0.0").__enter__()
    with Server(settings={"log.dir": str(tmp_path / "data")}) as server:
        with_users(server, "alice")
    with pytest.raises(SettingsError, match=r"oncelog\.metrics\.sign\.in=never is for 127\.0\.0\.1 alone"):
        scraped({**beyond, "oncelog.metrics.sign.in": "never"}, "0.0.0.0").__enter__()
    with scraped(beyond, "0.0.0.0") as server:
        trusting = ssl.create_default_context(cafile=authority.certificate)
        assert [status(server, given, trusting) for given in (None, basic("alice"))] == [401, 200]
        with pytest.raises(OSError, match=r"reset|closed|Remote"):
            ask(server, basic("alice"))


@pytest.mark.parametrize("host", ["", "[::]", "0.0.0.0", "log.example.org"])
def test_every_other_address_is_beyond_loopback(host: str) -> None:
    with pytest.raises(SettingsError, match="a certificate"):
        scraped({}, host).__enter__()


def test_three_hundred_idle_connections_keep_no_scraper_out(server: Server) -> None:
    idle_connections(server, None)


def test_three_hundred_idle_connections_keep_no_scraper_out_of_tls(
    authority: Authority, keystore: dict[str, str]
) -> None:
    with scraped({**keystore, **SIGNS_IN, "oncelog.metrics.tls": "always"}) as server:
        with_users(server, "alice")
        idle_connections(server, ssl.create_default_context(cafile=authority.certificate))


def idle_connections(server: Server, tls: ssl.SSLContext | None) -> None:
    """Some have begun to ask, and some, by TLS, are done with the handshake."""
    most = MAX_OPEN if tls is None else MAX_OPEN + HANDSHAKES
    with ExitStack() as stack:
        idle: list[socket.socket] = []
        for number in range(300):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.service.metrics_port or 0), 30))
            if tls is not None and number % 10 == 0:
                one = stack.enter_context(tls.wrap_socket(one, server_hostname="127.0.0.1"))
            if number % 20 == 0:
                one.sendall(b"GET /metrics HTTP/1.1\r\n")
            one.setblocking(False)
            idle.append(one)
        assert status(server, basic("alice"), tls) == 200
        until(lambda: sum(map(is_open, idle)) <= most, "the others have made room")


def is_open(idle: socket.socket) -> bool:
    try:
        return idle.recv(1) != b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


def test_a_server_that_secures_itself_secures_its_metrics() -> None:
    with oncelog.Server(secure=True, oncelog_metrics_listener="0.0.0.0:0") as server:
        trusting = ssl.create_default_context(cafile=server.client_config["ssl.ca.location"])
        admin = basic(server.client_config["sasl.username"], server.client_config["sasl.password"])
        assert [status(server, given, trusting) for given in (None, admin)] == [401, 200]


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, Path]]:
    """`oncelog serve --secure` with its metrics beyond loopback, at that port; and the folder of what it has made."""
    server = Life("the server", folder / "said")
    command = [sys.executable, "-m", "oncelog", "serve", "--secure", "--listen", "127.0.0.1:0"]
    server.launch([*command, "--data", str(folder / "data"), "--metrics", "0.0.0.0:0"])
    try:
        port = int(server.await_words(r"; metrics on 0\.0\.0\.0:(\d+)\n"))
        yield port, folder / "data" / "secure"
        server.stop()
        assert server.process.returncode == 0
    finally:
        server.kill()


def test_prometheus_gets_in_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the commands of the page, and what Prometheus does with its lines."""
    monkeypatch.setattr(users, "can_ask", lambda: True)
    page = Path(ROOT, "docs", "metrics.md").read_text()
    commands = [line.removeprefix("oncelog ") for line in page.splitlines() if line.startswith("oncelog ")]
    (job,) = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])["scrape_configs"]
    scraper = basic(job["basic_auth"]["username"])
    with served(tmp_path) as (port, secure):
        trusting = ssl.create_default_context(cafile=secure / job["tls_config"]["ca_file"])
        for number, command in enumerate(commands):
            assert ask_port(port, scraper, trusting)[0] == (401, 403)[number]
            given = ("-F", str(secure / "client.properties"))
            said = CliRunner().invoke(main, [*shlex.split(command), *given], input=f"{PASSWORD}\n{PASSWORD}\n")
            assert said.exit_code == 0, said.output
        found, text, _ = ask_port(port, scraper, trusting)
        assert found == 200 and "\nkafka_brokers 1\n" in text
