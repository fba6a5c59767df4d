"""Who one is by a token (OAUTHBEARER), as the Java client shows it: from a file that somebody else keeps."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.chaos.life import free_ports
from tests.peers.jars import TOOL_JVM, MissingPeer, kafka_java, need_or_skip
from tests.peers.oncelog_process import OncelogProcess
from tests.server.jwks import AUDIENCE, ISSUER, Issuer
from tests.server.tls_support import World, new_world

pytestmark = [pytest.mark.thorough, pytest.mark.peers]

TOOL_SECONDS = 90
TOOLS = "org.apache.kafka.tools"
OF_TOKENS = "org.apache.kafka.common.security.oauthbearer"
ALLOWED = ("urls", "files")  # Java reads tokens only from where its command line allows it


class Door:
    """A listener with TLS and tokens, and the issuer of those."""

    def __init__(self, folder: Path, world: World, issuer: Issuer) -> None:
        self.world, self.issuer = world, issuer
        open_port, port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.server = OncelogProcess(
            folder / "server",
            port=open_port,
            settings={
                "listeners": f"PLAINTEXT://127.0.0.1:{open_port},SASL_SSL://{self.address}",
                "ssl.keystore.location": world.keystore,
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "group.initial.rebalance.delay.ms": "0",
            },
        )

    def run(
        self, folder: Path, token: str, tool: str, *words: str, typed: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """One of Kafka's tools, which has that token."""
        at, file = folder / "token.jwt", folder / "client.properties"
        at.write_text(token)
        file.write_text(
            "security.protocol=SASL_SSL\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.world.authority.certificate}\n"
            "sasl.mechanism=OAUTHBEARER\n"
            f"sasl.jaas.config={OF_TOKENS}.OAuthBearerLoginModule required;\n"
            f"sasl.login.callback.handler.class={OF_TOKENS}.OAuthBearerLoginCallbackHandler\n"
            f"sasl.oauthbearer.token.endpoint.url={at.as_uri()}\n"
        )
        allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{each}={at.as_uri()},{at}" for each in ALLOWED]
        arguments = (f"{TOOLS}.{tool}", "--bootstrap-server", self.address, *words, "--command-config", str(file))
        try:
            order = kafka_java(*arguments, jvm=(*TOOL_JVM, *allowed))
        except MissingPeer as missing:
            need_or_skip(missing)
        return subprocess.run(order, input=typed, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("tokens")
    issuer = Issuer(folder / "keys.json")
    issuer.new_key("one", "RSA")
    issuer.publish()
    found = Door(folder, new_world(folder), issuer)
    with found.server:
        yield found
        assert "Traceback" not in found.server.log_text(), found.server.log_text()[-4000:]


def test_who_has_a_token_writes_and_reads(door: Door, tmp_path: Path) -> None:
    token, lines = door.issuer.token("one", "RS256"), [f"line {number}" for number in range(20)]
    typed = "".join(f"{line}\n" for line in lines)
    written = door.run(tmp_path, token, "ConsoleProducer", "--topic", "lines", typed=typed)
    assert written.returncode == 0, written.stdout + written.stderr
    words = ("--topic", "lines", "--from-beginning", "--max-messages", "20", "--timeout-ms", "60000")
    read = door.run(tmp_path, token, "consumer.ConsoleConsumer", *words)
    assert read.stdout.splitlines() == lines, read.stderr


def test_a_token_of_somebody_elses_key_is_told_so(door: Door, tmp_path: Path) -> None:
    other = Issuer(tmp_path / "keys.json")
    other.new_key("one", "RSA")
    told = door.run(tmp_path, other.token("one", "RS256"), "TopicCommand", "--list")
    assert told.returncode != 0
    assert '{"status":"invalid_token"}' in told.stdout + told.stderr
