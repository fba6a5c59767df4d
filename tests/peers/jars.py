"""Jars of the peers, fetched once by Maven into the user's cache, and the one way to start a JVM with them.

Where Maven or Java is missing, the tests that need them are skipped with the remedy as the reason; with CI set they
fail instead.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

POMS = Path(__file__).parent
FETCH_SECONDS = 600

# What Apache Kafka's own start scripts give a broker.
BROKER_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# A tool that runs for two seconds is done before the second compiler pays off.
TOOL_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class MissingPeer(RuntimeError):
    """A peer cannot be started on this machine; the text says what to install."""


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def need_or_skip(reason: MissingPeer) -> None:
    """Skips the test that asked, loudly; in CI a missing peer is a failure."""
    if in_ci():
        pytest.fail(f"CI must not skip the peers: {reason}", pytrace=False)
    pytest.skip(f"NOT RUN: {reason}")


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "oncelog-peers"


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise MissingPeer("there is no `java` on the path; install a JRE of version 17 or newer")
    return found


def jars(name: str, proof: str) -> Path:
    """The folder with the jars of `tests/peers/NAME/pom.xml`; `proof` is the jar that shows it is complete."""
    folder = cache_folder() / name
    if (folder / proof).exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingPeer(f"there is no `mvn` on the path to fetch the jars of {name}; install Apache Maven")
    fresh = folder.with_name(f"{name}.fetching-{os.getpid()}")
    fresh.mkdir(parents=True, exist_ok=True)
    pom = POMS / name / "pom.xml"
    order = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    try:
        done = subprocess.run(order, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        if done.returncode:
            raise MissingPeer(f"Maven could not fetch the jars of {name}: {(done.stdout + done.stderr)[-600:]}")
        _put_in_place(fresh, folder, proof)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _put_in_place(fresh: Path, folder: Path, proof: str) -> None:
    """Two test runs may fetch at once; whoever comes second uses what the first one put there."""
    if folder.exists() and not (folder / proof).exists():
        shutil.rmtree(folder)
    try:
        fresh.rename(folder)
    except OSError:
        if not (folder / proof).exists():
            raise


def kafka_jars() -> Path:
    return jars("kafka", "kafka_2.13-4.3.0.jar")


def mirror_jars() -> Path:
    return jars("mirror", "connect-mirror-4.3.0.jar")


def streams_jars() -> Path:
    return jars("streams", "kafka-streams-4.3.0.jar")


def connect_jars() -> Path:
    return jars("connect", "connect-file-4.3.0.jar")


def spark_connector_jars() -> Path:
    return jars("spark", "spark-sql-kafka-0-10_2.13-4.2.0.jar")


def kafka_java(
    *arguments: str, jvm: tuple[str, ...] = TOOL_JVM, log_level: str = "warn", beside: tuple[Path, ...] = ()
) -> list[str]:
    """The command that runs one of Kafka's classes, or of the jars in the folders beside them."""
    logging = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    jars = os.pathsep.join(f"{folder}/*" for folder in (kafka_jars(), *beside))
    return [java(), *jvm, "-cp", jars, logging, *arguments]
