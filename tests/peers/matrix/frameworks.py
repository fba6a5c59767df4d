"""Frameworks and services, each with what it does."""

from typing import Final

from bench.flow_contestant import BYTEWAX, KINDS, QUIX_FAST, Work
from tests.peers.jars import POMS, connect_jars, java, mirror_jars, streams_jars
from tests.peers.matrix.apps import Command, application, copied, counted
from tests.peers.matrix.installing import java_version, locked_version, on_path, python
from tests.peers.matrix.managers import BY_FILES, TOPICCTL
from tests.peers.matrix.monitors import BY_EXPORTER, BY_KMINION, KAFKA_EXPORTER, KMINION
from tests.peers.matrix.services import APICURIO_REGISTERS, CONNECT, KARAPACE_REGISTERS, MIRROR, apicurio
from tests.peers.matrix.steps import Peer, Step

EXACTLY_ONCE: Final = POMS / "streams" / "ExactlyOnce.java"
COUNTS: Final = "counts by key with state"


def contestant(kind: str, pipeline: str) -> Command:
    return lambda _: [*KINDS[kind].command(), pipeline]


def streams(guarantee: str) -> Command:
    def command(work: Work) -> list[str]:
        words = (work.servers, work.app, str(work.state), work.source, work.out, guarantee)
        return [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{streams_jars()}/*", str(EXACTLY_ONCE), *words]

    return command


def of_others(name: str, program: str, version: str, step: Step) -> Peer:
    """What no registry has that these tests fetch from: it is run where it is on the path."""
    return Peer(name=name, version=lambda: version, install=lambda: on_path(program), steps=(step,), is_quick=False)


FRAMEWORKS: Final = (
    Peer(
        name="Kafka Streams, `exactly_once_v2`",
        version=lambda: java_version("streams", "kafka-streams"),
        install=streams_jars,
        steps=(application(COUNTS, streams("exactly_once_v2"), counted, is_exact=True),),
        is_quick=False,  # tests/peers/test_transactions.py has it, too
    ),
    Peer(
        name="Kafka Streams, `at_least_once`",
        version=lambda: java_version("streams", "kafka-streams"),
        install=streams_jars,
        steps=(application(COUNTS, streams("at_least_once"), counted, is_exact=False),),
        is_quick=False,
    ),
    Peer(
        name="Quix Streams, `exactly-once`",
        version=lambda: locked_version("quixstreams"),
        install=KINDS[QUIX_FAST].command,
        steps=(application(COUNTS, contestant(QUIX_FAST, "count-fast"), counted, is_exact=True),),
    ),
    Peer(
        name="Bytewax",
        version=lambda: locked_version("bytewax"),
        install=KINDS[BYTEWAX].command,
        steps=(application(COUNTS, contestant(BYTEWAX, "count"), counted, is_exact=False),),
    ),
    Peer(
        name="FastStream",
        version=lambda: locked_version("faststream"),
        install=lambda: python("faststream_copying"),
        steps=(application("copies", lambda _: python("faststream_copying"), copied, is_exact=False),),
    ),
    Peer(
        name="Connect, with `exactly.once.source.support`",
        version=lambda: java_version("connect", "connect-file"),
        install=connect_jars,
        steps=(CONNECT,),
    ),
    Peer(
        name="MirrorMaker 2",
        version=lambda: java_version("mirror", "connect-mirror"),
        install=mirror_jars,
        steps=(MIRROR,),
        is_quick=False,
    ),
    Peer(
        name="Apicurio Registry",
        version=lambda: java_version("apicurio", "apicurio-registry-app"),
        install=apicurio,
        steps=(APICURIO_REGISTERS,),
    ),
    of_others("Karapace", "karapace", "6.2.0", KARAPACE_REGISTERS),
    of_others("kminion", KMINION.program, "2.3.5", BY_KMINION),
    of_others("kafka_exporter", KAFKA_EXPORTER.program, "1.9.0, 953e2f1", BY_EXPORTER),
    of_others("topicctl", TOPICCTL, "2.0.2", BY_FILES),
)
