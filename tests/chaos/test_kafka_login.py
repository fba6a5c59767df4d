"""How an experiment gets into a Kafka of the user's: each client by its own words, and no secret where others look."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from oncelog.chaos import java_sending
from oncelog.chaos.guard import Guard
from oncelog.chaos.java_sending import properties
from oncelog.chaos.kafka_login import Kafka, NotForJava, behind_proxy, for_java
from oncelog.chaos.order_variable import VARIABLE
from oncelog.chaos.outcome import Options
from oncelog.chaos.pipeline import PipelineLives, PipelineOrder
from oncelog.chaos.processes import ProducerLives
from oncelog.chaos.report import command_of
from oncelog.chaos.sending import Order
from oncelog.cli import main
from oncelog.references import properties as lines_of

SECRET = 'hush "\\ ü'
SCRAM = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": SECRET}
OVER_TLS = {"security.protocol": "sasl_ssl", "ssl.ca.location": "/ca.pem", **SCRAM}
UNCHECKED = ("--servers", "h:1", "-X", "security.protocol=ssl", "-X", "enable.ssl.certificate.verification=false")
OF_TOKENS = "org.apache.kafka.common.security.oauthbearer"
BY_TOKENS = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.secret": "hush",
    "sasl.oauthbearer.scope": "write",
    "sasl.oauthbearer.extensions": "a=1,b=2",
    "sasl.oauthbearer.token.endpoint.url": "https://h/token",
}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="hush \\"\\\\ ü";'


def test_clients_of_the_proxy_prove_who_they_are_and_leave_tls_to_it() -> None:
    assert behind_proxy(OVER_TLS) == {"security.protocol": "sasl_plaintext", **SCRAM}
    assert behind_proxy({"security.protocol": "SSL", "ssl.key.pem": "k"}) == {"security.protocol": "plaintext"}
    assert behind_proxy({}) == {}


def file(folder: Path, name: str) -> str:
    (folder / name).write_text(f"text of {name}")
    return str(folder / name)


def test_java_is_told_the_same_by_its_own_names(tmp_path: Path) -> None:
    found = for_java(OVER_TLS | {"ssl.ca.location": file(tmp_path, "ca")})
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "text of ca",
    }


def test_java_is_told_a_certificate_of_ones_own(tmp_path: Path) -> None:
    both = file(tmp_path, "both")
    one_file = {"security.protocol": "ssl", "ssl.certificate.location": both, "ssl.key.password": "p"}
    found = for_java(one_file | {"ssl.endpoint.identification.algorithm": "none"})
    assert found == {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "text of both",
        "ssl.keystore.key": "text of both",
        "ssl.key.password": "p",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_java_is_told_where_tokens_come_from_and_allowed_to_ask_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = for_java(BY_TOKENS | {"https.ca.pem": "line\nline"})
    assert found == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{OF_TOKENS}.OAuthBearerLoginModule required clientId="me" clientSecret="hush" '
        'scope="write" extension_a="1" extension_b="2" ssl.truststore.type="PEM" '
        'ssl.truststore.certificates="line\\nline";',
        "sasl.login.callback.handler.class": f"{OF_TOKENS}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://h/token",
    }
    monkeypatch.setattr(java_sending, "find_java", lambda environ: SimpleNamespace(home=Path("/java")))
    said = java_sending.command(Order("java", "h:1", "t", 1, 1, login=BY_TOKENS), {})
    assert "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://h/token" in said
    assert "hush" not in " ".join(said)


def test_java_is_told_of_unsigned_tokens() -> None:
    told = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "principal=me scope=a,b extension_c=3"}
    assert for_java({"security.protocol": "sasl_plaintext", **told}) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{OF_TOKENS}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="me" '
        'unsecuredLoginPrincipalClaimName="sub" unsecuredLoginLifetimeSeconds="3600" '
        'unsecuredLoginListClaim_scope=",a,b" unsecuredLoginExtension_c="3";',
    }


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanisms=GSSAPI"),
        ({"enable.ssl.certificate.verification": "false"}, "always checks certificates"),
        ({"ssl.crl.location": "/crl"}, "ssl.crl.location"),
    ],
)
def test_what_java_cannot_be_told_is_refused(tmp_path: Path, more: dict[str, str], words: str) -> None:
    with pytest.raises(NotForJava, match=words):
        for_java(OVER_TLS | {"ssl.ca.location": file(tmp_path, "ca")} | more)


def test_javas_file_of_properties_keeps_every_character(tmp_path: Path) -> None:
    key = " k\b\t=\n#!: \U0001f511 "
    login = OVER_TLS | {"ssl.key.password": key, "ssl.certificate.pem": "c", "ssl.ca.location": file(tmp_path, "ca")}
    said = properties(Order("java", "", "t", 1, 1, login=login))
    assert said.isascii()
    read = dict(lines_of(said.splitlines()))
    assert read["sasl.jaas.config"] == JAAS
    assert read["ssl.key.password"].encode("utf-16", "surrogatepass").decode("utf-16") == key


def test_no_secret_is_in_what_is_shown() -> None:
    options = Options(messages=1, servers="h:1", login=OVER_TLS)
    order = Order("oncelog", "h:1", "t", 1, 1, login=OVER_TLS)
    pipeline = PipelineOrder("h:1", "in", "out", "/", "direct", 1, 1, {"spark.x.secret": "hush"}, OVER_TLS)
    for shown in (repr(options), repr(order), repr(pipeline), repr(Kafka("h:1", OVER_TLS)), command_of(options)):
        assert "hush" not in shown
    assert "-F ..." in command_of(options)


class Started(Guard):
    """Starts nothing, and keeps how it was to be started."""

    def popen(self, command: Sequence[str], variables: Mapping[str, str] | None = None, **how: Any) -> Any:
        self.command, self.told = command, (variables or {})[VARIABLE]
        return subprocess.Popen(["true"], **how)


@pytest.mark.parametrize("client", ["oncelog", "java"])
def test_no_secret_is_on_the_command_line_of_a_process(tmp_path: Path, client: str) -> None:
    order = Order(client, "h:1", "t", 1, 1, login=OVER_TLS)
    pipeline = PipelineOrder("h:1", "in", "out", "/", "direct", 1, 1, {"spark.x.secret": "hush"}, OVER_TLS)
    guard = Started()
    for lives in (ProducerLives(guard, tmp_path, order), PipelineLives(guard, tmp_path, pipeline)):
        lives.start()
        with lives.process:
            pass  # it has ended
        assert "hush" not in " ".join(guard.command)
        assert "hush" in guard.told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-X", "security.protocol=ssl"), "which --servers names"),
        (("--servers", "h:1", "-X", "acks=1"), "-X acks: only how to get in can be said"),
        (("--servers", "h:1", "-X", "sasl.pasword=x"), "sasl.pasword"),
        (("--servers", "h:1", "-X", "security.protocol=sasl"), "security.protocol"),
        (
            (*UNCHECKED, "--spark", "--sink", "kafka", "--kill", "nothing"),
            "Java's client always checks certificates",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_starts(arguments: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(main, ["chaos", *arguments])
    assert done.exit_code == 2, done.output
    assert words in done.output


def test_a_file_of_a_key_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    order = ["chaos", "--servers", "h:1", "--spark", "--sink", "kafka", "--kill", "nothing"]
    order += ["-X", "security.protocol=ssl", "-X", f"ssl.ca.location={tmp_path / 'nowhere.pem'}"]
    done = CliRunner().invoke(main, order)
    assert done.exit_code == 2
    assert "nowhere.pem cannot be read" in done.output
