"""The experiment on a server that wants TLS and a password, as on a Kafka of the user's."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncelog.chaos.experiment import run
from oncelog.chaos.guard import pids
from oncelog.chaos.java_sending import kafka_libs
from oncelog.chaos.outcome import Options, Outcome, Pipeline, Progress, Verdict
from oncelog.chaos.plan import Target
from oncelog.chaos.process_tree import command_of
from oncelog.chaos.report import lines
from oncelog.chaos.stopped import Stopped
from oncelog.cli import main
from oncelog.client import Admin
from oncelog.embedded import Server
from tests.cli.running import Oncelog
from tests.client.net.certificates import Authority
from tests.client.net.secured_kafka import SecuredKafka, login
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip, spark_connector_jars
from tests.server.jwks import AUDIENCE, Issuer, says, serving

HURT = frozenset({Target.CONNECTIONS, Target.RESPONSES})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(secure=True, settings={"auto.create.topics.enable": "false"}) as started:
        yield started


def login_of(config: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in config.items() if name != "bootstrap.servers"}


def experiment(servers: str, login: dict[str, str], folder: Path, watch: Any = None, **more: Any) -> Outcome:
    given = {"messages": 20_000, "rate": 15_000, "every": 2_000, "partitions": 2, "targets": HURT, **more}
    return run(Options(servers=servers, login=login, **given), folder, *[watch] * (watch is not None))


def looking_for(secret: str, seen: set[str]) -> Callable[[Progress], None]:
    """At the command lines of all processes, while the experiment runs; `seen` tells which of its own were there."""

    def look(progress: Progress) -> None:
        for pid in pids():
            said = command_of(pid)
            assert secret.encode() not in said, said
            seen.update(part for part in said.decode(errors="replace").split("\0") if part.startswith("oncelog.chaos."))

    return look


@pytest.mark.thorough
def test_connections_with_tls_and_a_password_are_hurt_and_no_command_line_tells_the_password(
    server: Server, tmp_path: Path
) -> None:
    config, seen = server.client_config, set[str]()
    watch = looking_for(config["sasl.password"], seen)
    targets = HURT | {Target.PRODUCER}
    found = experiment(server.bootstrap_servers, login_of(config), tmp_path, watch, targets=targets)
    assert found.verdict is Verdict.EXACT, lines(found)
    assert {each.target for each in found.happened} == targets
    assert "oncelog.chaos.sending" in seen
    with Admin(config) as admin:
        assert not [name for name in admin.list_topics().topics if name.startswith("chaos")]


def test_the_command_takes_a_file_of_the_client_and_wants_no_other_rights_than_the_page_says(
    server: Server, tmp_path: Path
) -> None:
    password = "a word of theirs"
    mine, theirs, report = tmp_path / "mine", tmp_path / "theirs", tmp_path / "report"
    mine.write_text(lines_of(server.client_config))
    theirs.write_text(lines_of(server.client_config | {"sasl.username": "tester", "sasl.password": password}))
    oncelog = Oncelog(server.bootstrap_servers)
    oncelog("users add", "tester", "-F", str(mine), "--password-file", "-", stdin=password.encode())
    rights = [word for each in ("Create", "Read", "Write", "Delete") for word in ("--operation", each)]
    prefixed = ("--topic", "chaos-", "--resource-pattern-type", "prefixed")
    oncelog("acls add", "-F", str(mine), "--allow-principal", "User:tester", *rights, *prefixed)
    order = ["chaos", "--servers", server.bootstrap_servers, "-F", str(theirs), "--report", str(report)]
    done = CliRunner().invoke(main, [*order, "--messages", "8000", "--rate", "8000", "--every", "1000"])
    assert done.exit_code == Verdict.EXACT, done.output
    assert json.loads((report / "report.json").read_text())["verdict"] == "exact"
    for said in (done.output, *(path.read_text() for path in report.iterdir())):
        assert password not in said
    with Admin(server.client_config) as admin:
        assert not [name for name in admin.list_topics().topics if name.startswith("chaos")]


def lines_of(config: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in config.items())


def test_who_does_not_get_in_is_told_why(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Stopped, match=r"(?i)authentication failed") as refused:
        experiment(server.bootstrap_servers, login_of(server.client_config) | {"sasl.password": "hush"}, tmp_path)
    assert "hush" not in str(refused.value)


# --- every client and sink --------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_librdkafka_is_hurt_too(server: Server, tmp_path: Path) -> None:
    found = experiment(server.bootstrap_servers, login_of(server.client_config), tmp_path, client="librdkafka")
    assert found.verdict is Verdict.EXACT, lines(found)


@pytest.mark.thorough
@pytest.mark.peers
def test_javas_client_is_hurt_too(server: Server, tmp_path: Path) -> None:
    config, seen = server.client_config, set[str]()
    watch = looking_for(config["sasl.password"], seen)
    found = experiment(
        server.bootstrap_servers, login_of(config), tmp_path, watch, client="java", kafka_libs=jars_of_kafka()
    )
    assert found.verdict is Verdict.EXACT, lines(found)
    assert "oncelog.chaos.java_sending" in seen


@pytest.mark.thorough
@pytest.mark.peers
@pytest.mark.parametrize("client", ["oncelog", "java"])
def test_by_tokens_of_a_provider_connections_are_hurt_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    issuer, authority = Issuer(tmp_path / "keys.json"), Authority(tmp_path)
    issuer.new_key("one", "RSA")
    issuer.publish()
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "super.users": "User:ann",
    }
    with serving(authority) as provider, Server(secure=True, settings=settings) as tokened:
        provider.answer = lambda to: says(json.dumps({"access_token": issuer.token("one", "RS256")}).encode())(to)
        entry = {name: value for name, value in tokened.client_config.items() if name.startswith("ssl.")} | {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "ann",
            "sasl.oauthbearer.client.secret": 'hu"sh',
            "sasl.oauthbearer.token.endpoint.url": provider.url,
            "https.ca.location": authority.certificate,
        }
        libs = jars_of_kafka() if client == "java" else ""
        watch = looking_for(entry["sasl.oauthbearer.client.secret"], set())
        found = experiment(tokened.bootstrap_servers, entry, tmp_path, watch, client=client, kafka_libs=libs)
    assert found.verdict is Verdict.EXACT, lines(found)


@pytest.mark.thorough
@pytest.mark.parametrize("sink", ["direct", "sealed", "kafka", "flow"])
@pytest.mark.parametrize("log", ["oncelog", pytest.param("kafka", marks=pytest.mark.peers)])
def test_a_pipeline_reads_and_writes(request: pytest.FixtureRequest, tmp_path: Path, log: str, sink: str) -> None:
    servers, entry = way_into(request, log)
    seen, conf = set[str](), dict[str, str]()
    if sink == "kafka":
        try:
            conf["spark.jars"] = ",".join(str(path) for path in sorted(spark_connector_jars().glob("*.jar")))
        except MissingPeer as missing:
            need_or_skip(missing)
    watch = looking_for(entry["sasl.password"], seen)
    pipeline = Pipeline(sink=sink, conf=conf)
    many = {"messages": 60_000, "every": 6_000}  # of three faults one kind may meet nothing that is under way
    found = experiment(servers, entry, tmp_path, watch, topic=f"to-{sink}", spark=pipeline, **many)
    assert found.verdict is Verdict.EXACT, lines(found)
    assert seen & {"oncelog.chaos.pipeline_job", "oncelog.chaos.flow_job"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sink", "more"),
    [
        ("direct", {"messages": 120_000, "rate": 10_000, "every": 22_000, "seed": 17}),
        ("sealed", {"messages": 120_000, "rate": 10_000, "every": 22_000, "seed": 17}),
        ("flow", {"messages": 72_000, "rate": 5_000, "every": 12_000}),
    ],
)
def test_whoever_of_a_pipeline_is_killed_gets_in_again(
    server: Server, tmp_path: Path, sink: str, more: dict[str, Any]
) -> None:
    config, targets = server.client_config, frozenset({Target.DRIVER, Target.EXECUTOR, Target.RESPONSES})
    found = experiment(
        server.bootstrap_servers,
        login_of(config),
        tmp_path,
        looking_for(config["sasl.password"], set()),
        topic=f"killed-{sink}",
        targets=targets,
        spark=Pipeline(sink=sink, rows_a_batch=10_000),  # so that there is work to be killed behind a restart, too
        **more,
    )
    assert found.verdict is Verdict.EXACT, lines(found)
    assert {each.target for each in found.happened} == targets


def way_into(request: pytest.FixtureRequest, log: str) -> tuple[str, dict[str, str]]:
    if log == "kafka":
        kafka: SecuredKafka = request.getfixturevalue("secured_kafka")
        return kafka.addresses["SASL_SSL"], login(kafka, "SASL_SSL")
    server: Server = request.getfixturevalue("server")
    return server.bootstrap_servers, login_of(server.client_config)


@pytest.mark.thorough
@pytest.mark.peers
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("client", ["oncelog", "librdkafka", "java"])
def test_a_real_kafka_is_hurt_too(secured_kafka: SecuredKafka, tmp_path: Path, listener: str, client: str) -> None:
    libs = jars_of_kafka() if client == "java" else ""
    servers, entry = secured_kafka.addresses[listener], login(secured_kafka, listener)
    found = experiment(servers, entry, tmp_path, topic=f"{client}-{listener}", client=client, kafka_libs=libs)
    assert found.verdict is Verdict.EXACT, lines(found)
    assert {each.target for each in found.happened} == HURT


@pytest.fixture(scope="module")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    jars_of_kafka()
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    with SecuredKafka(tmp_path_factory.mktemp("kafka"), authority) as started:
        yield started


def jars_of_kafka() -> str:
    try:
        found = kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    return str(kafka_libs(str(found)))
