"""A contestant of `bench.flows`: how its program is started, where its libraries come from, what it takes."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.process import ROOT
from bench.spark_contestant import session_cpu_seconds
from oncelog.chaos.life import Life
from oncelog.chaos.process_tree import end_session, session_of
from tests.peers.jars import MissingPeer, cache_folder, java, spark_connector_jars, streams_jars

OURS = "oncelog"
OURS_SHARED = "oncelog-shared"
OURS_SPARK = "oncelog-spark"
STREAMS = "streams"
QUIX = "quixstreams"
QUIX_FAST = "quixstreams-fast"
BYTEWAX = "bytewax"
SPARK = "spark"

PROGRAMS = Path(__file__).parent / "flow_peers"
INSTALL_S = 600
STOP_S = 20.0
HEAP = "-Xmx1g"


@dataclass(frozen=True, slots=True)
class Kind:
    """`pace` records keep it at work for some seconds."""

    title: str
    command: Callable[[], list[str]]
    pace: int


def environment(lock: str) -> Path:
    """The Python of an environment with the packages of requirements/LOCK.txt, made once by uv in the user's cache."""
    file = ROOT / "requirements" / f"{lock}.txt"
    folder = cache_folder() / f"{lock}-{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        raise MissingPeer(f"there is no `uv` to install {lock} with: pip install uv")
    for order in (
        ["venv", "--quiet", "--clear", "--python", sys.executable, str(folder)],
        ["pip", "install", "--quiet", "--python", str(python), "--require-hashes", "--no-deps", "-r", str(file)],
    ):
        done = subprocess.run([uv, *order], capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode:
            raise MissingPeer(f"uv could not install requirements/{lock}.txt: {done.stderr[-600:]}")
    (folder / "complete").touch()
    return python


def streams() -> list[str]:
    """Compiled once, beside its jars."""
    folder = streams_jars()
    source, made = PROGRAMS / "Streams.java", folder / "Streams.class"
    path = f"{folder}{os.pathsep}{folder}/*"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("javac")
        if compiler is None:
            raise MissingPeer("there is no `javac` on the path; install a JDK of version 17 or newer")
        subprocess.run([compiler, "-cp", path, "-d", str(folder), str(source)], check=True, timeout=INSTALL_S)
    return [java(), HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path, "Streams"]


def program(name: str, python: Callable[[], Path | str] = lambda: sys.executable) -> Callable[[], list[str]]:
    return lambda: [str(python()), "-m", f"bench.flow_peers.{name}"]


def frameworks() -> Path:
    return environment("frameworks")


KINDS = {
    OURS: Kind("oncelog", program("ours"), 1_000_000),
    OURS_SHARED: Kind("oncelog, two processes", program("ours_shared"), 1_000_000),
    OURS_SPARK: Kind("oncelog on Spark", program("ours_spark"), 1_000_000),
    STREAMS: Kind("Kafka Streams `exactly_once_v2`", streams, 400_000),
    QUIX: Kind("quixstreams, exactly once", program("quix", frameworks), 800_000),  # several of its commits
    QUIX_FAST: Kind("quixstreams, a commit every 0.1 s", program("quix", frameworks), 100_000),
    BYTEWAX: Kind("bytewax, at least once", program("wax", frameworks), 250_000),
    SPARK: Kind("Spark: `transformWithState`, its file sink", program("tws"), 20_000),
}


@dataclass(frozen=True, slots=True)
class Work:
    """What it is told."""

    pipeline: str
    app: str
    servers: str
    source: str
    out: str
    state: Path
    between: str = ""
    partitions: int = 4
    out_partitions: int = 4

    def variables(self) -> dict[str, str]:
        named = {"SERVERS": self.servers, "APP": self.app, "IN": self.source, "OUT": self.out, "STATE": str(self.state)}
        named |= {"BETWEEN": self.between, "PARTITIONS": str(self.partitions)}
        named["OUT_PARTITIONS"] = str(self.out_partitions)
        return {f"FLOW_{name}": value for name, value in named.items()}


class Contestant(Life):
    """One life of a contestant, a session of processes of its own; a second life goes on with its state."""

    def __init__(self, kind: str, work: Work, folder: Path) -> None:
        super().__init__(kind, folder / f"{work.app}.log")
        self._kind = KINDS[kind]
        self._work = work
        self._folder = folder

    def __enter__(self) -> "Contestant":
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        ours = [str(ROOT / "src")] if self.name.startswith(OURS) else []
        variables = {**os.environ, **self._work.variables(), "PYTHONPATH": os.pathsep.join([str(ROOT), *ours])}
        variables["PYSPARK_PYTHON"] = sys.executable
        pipeline = self._work.pipeline
        if self.name == QUIX_FAST:
            pipeline += "-fast"
        if self.name == SPARK:
            variables["FLOW_JARS"] = ",".join(str(path) for path in sorted(spark_connector_jars().glob("*.jar")))
        self.launch([*self._kind.command(), pipeline], cwd=self._folder, env=variables, start_new_session=True)

    def cpu_s(self) -> float:
        return session_cpu_seconds(self.pid)

    def peak_mb(self) -> float:
        """Of all its processes together, each at its most."""
        return sum(map(_peak_mb, session_of(self.pid)))

    def leave(self) -> None:
        """SIGTERM to the process that was started, and what is left of its session is killed."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            self.has_ended_within(STOP_S)
        self.end()

    def end(self) -> None:
        """kill -9 of all its processes."""
        if self.was_started:
            end_session(self.process)


def _peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))
