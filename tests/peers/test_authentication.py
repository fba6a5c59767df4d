"""Who one is, as the Java client proves it and Kafka's own tools change it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.chaos.life import free_ports
from tests.peers.apache import CLUSTER_ID, QUICK_BROKER, ApacheKafka
from tests.peers.jars import MissingPeer, kafka_java, need_or_skip
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, ServerClosed
from tests.raw.sasl import say, shake_hands

pytestmark = [pytest.mark.thorough, pytest.mark.peers]

TOOL_SECONDS = 90
TOOLS = "org.apache.kafka.tools"
CONFIGS = "kafka.admin.ConfigCommand"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
REAUTH_MS = "3000"


class Secured(OncelogProcess):
    def __init__(self, folder: Path) -> None:
        (secured,) = free_ports(1)
        super().__init__(
            folder,
            settings={
                "connections.max.reauth.ms": REAUTH_MS,
                "group.initial.rebalance.delay.ms": "0",
            },
        )
        self.secured = f"127.0.0.1:{secured}"

    def command(self) -> list[str]:
        order = super().command()
        at = order.index("--listen")
        listeners = f"listeners=PLAINTEXT://{self.bootstrap_servers},SASL_PLAINTEXT://{self.secured}"
        return [*order[:at], *order[at + 2 :], "--set", listeners]


class SecuredKafka(ApacheKafka):
    """With one user already; the other ones are made through its first listener."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, jvm=QUICK_BROKER)
        (secured,) = free_ports(1)
        self.secured = f"127.0.0.1:{secured}"
        for name in ("listeners", "advertised.listeners"):
            self.settings[name] += f",SASL_PLAINTEXT://{self.secured}"
        self.settings |= {
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        }
        for mechanism in MECHANISMS:
            name = f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"
            self.settings[name] = f"{SCRAM} required;"

    def prepare(self) -> None:
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        order = kafka_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config))
        subprocess.run(order, check=True, capture_output=True, timeout=self.start_seconds)


@pytest.fixture(scope="module")
def oncelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured")) as server:
        yield server
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture(scope="module")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    try:
        kafka_java("kafka.Kafka")
    except MissingPeer as missing:
        need_or_skip(missing)
    with SecuredKafka(tmp_path_factory.mktemp("secured-kafka")) as server:
        yield server


def run(name: str, address: str, *arguments: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        command = kafka_java(name, "--bootstrap-server", address, *arguments)
    except MissingPeer as missing:
        need_or_skip(missing)
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)


def said(name: str, address: str, *arguments: str, typed: str = "") -> str:
    done = run(name, address, *arguments, typed=typed)
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def make(address: str, name: str, password: str, mechanism: str, iterations: int = 8192) -> None:
    value = f"{mechanism}=[iterations={iterations},password={password}]"
    told = said(CONFIGS, address, "--alter", "--add-config", value, "--entity-type", "users", "--entity-name", name)
    assert f"Completed updating config for user {name}." in told


def properties(folder: Path, name: str, password: str, mechanism: str) -> str:
    file = folder / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={SCRAM} required username="{name}" password="{password}";\n'
    )
    return str(file)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_tools_make_users_who_write_and_read(oncelog: Secured, tmp_path: Path, mechanism: str) -> None:
    topic, name = f"of-{mechanism}", f"user-{mechanism}"
    make(oncelog.bootstrap_servers, name, "s3cret", mechanism)
    file = properties(tmp_path, name, "s3cret", mechanism)
    lines = [f"line {number}" for number in range(20)]
    typed = "".join(f"{line}\n" for line in lines)
    said(f"{TOOLS}.ConsoleProducer", oncelog.secured, "--topic", topic, "--command-config", file, typed=typed)
    read = said(
        f"{TOOLS}.consumer.ConsoleConsumer",
        oncelog.secured,
        *("--topic", topic, "--from-beginning", "--max-messages", "20", "--timeout-ms", "30000"),
        *("--command-config", file),
    )
    assert read.splitlines() == lines


def test_a_wrong_password_is_told_by_the_java_client(oncelog: Secured, tmp_path: Path) -> None:
    make(oncelog.bootstrap_servers, "ann", "s3cret", "SCRAM-SHA-512")
    file = properties(tmp_path, "ann", "wrong", "SCRAM-SHA-512")
    done = run(f"{TOOLS}.TopicCommand", oncelog.secured, "--list", "--command-config", file)
    assert done.returncode != 0
    words = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    assert f"SaslAuthenticationException: {words}" in done.stdout + done.stderr


def test_users_are_removed(oncelog: Secured) -> None:
    address = oncelog.bootstrap_servers
    make(address, "bob", "s3cret", "SCRAM-SHA-512", 4096)
    with RawConnection(address) as raw:

        def described() -> list[int]:
            (found,) = raw.call("describe_user_scram_credentials", 0, users=[{"name": "bob"}]).results
            return [info.iterations for info in found.credential_infos]

        assert described() == [4096]
        of_bob = ("--entity-type", "users", "--entity-name", "bob")
        said(CONFIGS, address, "--alter", "--delete-config", "SCRAM-SHA-512", *of_bob)
        assert described() == []


def test_the_java_client_proves_it_again(oncelog: Secured, tmp_path: Path) -> None:
    """Sessions of three seconds, and a consumer that stays for more."""
    make(oncelog.bootstrap_servers, "eve", "s3cret", "SCRAM-SHA-256")
    file = properties(tmp_path, "eve", "s3cret", "SCRAM-SHA-256")
    done = run(
        f"{TOOLS}.consumer.ConsoleConsumer",
        oncelog.secured,
        *("--topic", "nothing-in-it", "--timeout-ms", "8000", "--command-config", file),
    )
    assert "Processed a total of 0 messages" in done.stdout + done.stderr
    assert "SaslAuthenticationException" not in done.stdout + done.stderr


# What both say to what no client sends

Question = Callable[[RawConnection], object]


def ask(address: str, question: Question) -> object:
    with RawConnection(address) as raw:
        try:
            return question(raw)
        except ServerClosed:
            return "closed"


def handshake_with(mechanism: str, version: int = 1) -> Question:
    def question(raw: RawConnection) -> object:
        answer = shake_hands(raw, mechanism, version)
        return answer.error_code.name, sorted(answer.mechanisms), ended(raw)

    return question


def ended(raw: RawConnection) -> str:
    """Both servers end a connection behind each of these answers; a busy one takes its time."""
    try:
        raw.receive_bytes()
    except ServerClosed:
        return "closed"
    return "answered"


def versions_twice(raw: RawConnection) -> object:
    first, second = (raw.call("api_versions", 0).error_code.name for _ in range(2))
    return first, second


def after_handshake(ask_next: Question) -> Question:
    def question(raw: RawConnection) -> object:
        shake_hands(raw, "SCRAM-SHA-256")
        return ask_next(raw)

    return question


def token(message: bytes) -> Question:
    def question(raw: RawConnection) -> object:
        answer = say(raw, message)
        return answer.error_code.name, answer.error_message, ended(raw)

    return question


def code_of(name: str, version: int, **values: object) -> Question:
    def question(raw: RawConnection) -> object:
        return raw.call(name, version, **values).error_code.name, ended(raw)

    return question


def metadata(raw: RawConnection) -> object:
    return len(raw.call("metadata", 9, topics=[]).brokers)


QUESTIONS: dict[str, Question] = {
    "a mechanism that is not enabled": handshake_with("GSSAPI"),
    "the same, in version 0": handshake_with("GSSAPI", 0),
    "versions twice": versions_twice,
    "metadata at first": metadata,
    "a token at first": token(b"x"),
    "versions after the handshake": after_handshake(code_of("api_versions", 0)),
    "a handshake after the handshake": after_handshake(code_of("sasl_handshake", 1, mechanism="SCRAM-SHA-256")),
    "a pid after the handshake": after_handshake(
        code_of("init_producer_id", 4, transaction_timeout=1, producer_id=-1, producer_epoch=-1)
    ),
    "garbage as a token": after_handshake(token(b"garbage")),
    "an empty token": after_handshake(token(b"")),
    "nobody's proof": after_handshake(lambda raw: nobody(raw)),
}


def nobody(raw: RawConnection) -> object:
    """Kafka says already to the first message that there is nobody; here that is said where a wrong password is."""
    answer = say(raw, b"n,,n=nobody,r=abcdef")
    if answer.error_code.name == "none":
        nonce = answer.auth_bytes.split(b",")[0]
        answer = say(raw, b"c=biws," + nonce + b",p=" + b"A" * 43 + b"=")
    return answer.error_code.name, answer.error_message, ended(raw)


@pytest.mark.parametrize("asked", QUESTIONS)
def test_both_answer_alike(oncelog: Secured, secured_kafka: SecuredKafka, asked: str) -> None:
    answers = {server.called: ask(server.secured, QUESTIONS[asked]) for server in (oncelog, secured_kafka)}
    assert answers["oncelog"] == answers["Apache Kafka"]


def altered(server: ServerProcess) -> object:
    upsertion = {"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
    requests: list[tuple[list[dict[str, object]], list[dict[str, object]]]] = [
        ([], [{**upsertion, "name": ""}]),
        ([], [{**upsertion, "mechanism": 9}]),
        ([], [{**upsertion, "iterations": 4095}]),
        ([], [{**upsertion, "iterations": 16_385}]),
        ([], [upsertion, {**upsertion, "mechanism": 2, "salted_password": bytes(64)}]),
        ([{"name": "nobody", "mechanism": 1}], []),
        ([{"name": "", "mechanism": 1}], []),
        ([{"name": "u", "mechanism": 9}], [{**upsertion, "name": "v"}]),
        ([], [upsertion]),
        ([{"name": "u", "mechanism": 2}], []),
        ([{"name": "u", "mechanism": 1}, {"name": "u", "mechanism": 1}], []),
        ([{"name": "u", "mechanism": 1}], [upsertion]),
        ([{"name": "u", "mechanism": 1}, {"name": "v", "mechanism": 1}], []),
    ]
    found = []
    with RawConnection(server.bootstrap_servers) as raw:
        for deletions, upsertions in requests:
            answer = raw.call("alter_user_scram_credentials", 0, deletions=deletions, upsertions=upsertions)
            found.append(sorted((each.user, each.error_code.name, each.error_message) for each in answer.results))
    return found


def test_both_alter_alike(oncelog: Secured, secured_kafka: SecuredKafka) -> None:
    ours, theirs = altered(oncelog), altered(secured_kafka)
    assert ours == theirs
