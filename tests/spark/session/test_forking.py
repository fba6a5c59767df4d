"""Workers that are forked from a process which has imported already: when they may be, and that they are the same."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pyspark
import pytest

from oncelog.chaos.guard import pids
from oncelog.chaos.process_tree import below, name_of
from oncelog.spark.forking import AT_START, Request, leads_alike, may_fork, paths
from oncelog.spark.warm_python import may_be_warm
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.session.running import environment
from tests.spark.session.test_idle_workers import LOOK_UP, daemon, work_and_let_go
from tests.spark.source.filling import new_topic, produce
from tests.waiting import until

DAEMON = ["-m", "pyspark.daemon", LOOK_UP]
OWN = {"HOME": "/home/u", "PATH": "/bin", **AT_START}
ALIKE = {"HOME": "/home/u", "PATH": "/bin"}
HERE = "/here"

# --- what may be forked


@pytest.mark.parametrize(
    "arguments",
    [
        DAEMON,
        ["-m", "pyspark.daemon", "pyspark.worker"],
        ["-m", "pyspark.sql.streaming.python_streaming_source_runner"],
    ],
)
def test_pysparks_own_modules_are_forked(arguments: list[str]) -> None:
    assert may_fork(Request(arguments, ALIKE, HERE), OWN)


@pytest.mark.parametrize("arguments", [["-m", "their.daemon", "pyspark.worker"], ["-c", "print(1)"], ["job.py"], []])
def test_a_users_own_daemon_and_all_else_is_started(arguments: list[str]) -> None:
    assert not may_fork(Request(arguments, ALIKE, HERE), OWN)


@pytest.mark.parametrize(
    "more",
    [
        {"SPARK_BUFFER_SIZE": "1", "PYTHON_WORKER_FACTORY_SECRET": "s", "_PYSPARK_DRIVER_CONN_INFO_PATH": "/x"},
        {"PYTHONPATH": "/more", "PWD": "/elsewhere", "JAVA_HOME": "/java"},
        AT_START,
    ],
)
def test_what_spark_gives_its_workers_makes_no_difference(more: dict[str, str]) -> None:
    assert may_fork(Request(DAEMON, ALIKE | more, HERE), OWN)


@pytest.mark.parametrize(
    "more", [{"OMP_NUM_THREADS": "4"}, {"PYTHONHASHSEED": "7"}, {"LD_PRELOAD": "x.so"}, {"HOME": "/other"}]
)
def test_a_worker_with_another_environment_is_started(more: dict[str, str]) -> None:
    assert not may_fork(Request(DAEMON, ALIKE | more, HERE), OWN)


def test_so_is_one_that_lacks_a_variable() -> None:
    assert not may_fork(Request(DAEMON, {"PATH": "/bin"}, HERE), OWN)


def test_the_path_of_modules_is_that_of_a_new_process() -> None:
    own = ["/started/in", "/said/before", "/usr/lib/python", "/site"]
    assert paths(own, "/said/before", "/said/now:/too", "/here") == [
        "/here",
        "/said/now",
        "/too",
        "/usr/lib/python",
        "/site",
    ]


def test_an_archive_without_modules_is_left_out_of_the_path(tmp_path: Path) -> None:
    """Spark's JAR, whose contents every worker would read. One that somebody put modules into stays."""
    classes, modules, broken = (str(tmp_path / name) for name in ("classes.jar", "modules.jar", "broken.jar"))
    for path, name in ((classes, "org/apache/spark/SparkContext.class"), (modules, "theirs.py")):
        with ZipFile(path, "w") as archive:
            archive.writestr(name, b"")
    Path(broken).touch()
    assert paths(["/started/in"], "", f"{classes}:{modules}:{broken}", "/here") == ["/here", modules, broken]


def test_a_path_that_leads_to_another_module_of_a_name_is_told_from_one_that_adds_others(tmp_path: Path) -> None:
    ours, more, other = (tmp_path / name for name in ("ours", "more", "other"))
    for module in (ours / "theirs.py", more / "new.py", other / "theirs.py"):
        module.parent.mkdir()
        module.touch()
    imported = frozenset({"theirs", "sys", "of_no_file"})
    own = (str(ours),)
    assert leads_alike((str(more), *own), own, imported)
    assert not leads_alike((str(other), *own), own, imported)
    assert not leads_alike((str(more),), own, imported)


# --- who may say which Python it is

IS_LINUX = sys.platform == "linux"


def test_in_a_local_session_it_is_ours_to_say() -> None:
    assert may_be_warm({}, {"spark.master": "local[2]"}) is IS_LINUX
    assert may_be_warm({}, {"spark.remote": "local"}) is IS_LINUX


def test_who_names_this_very_python_asks_for_no_other() -> None:
    """Nor does what a session has left in the environment, for drivers that this one starts."""
    assert may_be_warm({"PYSPARK_PYTHON": sys.executable}, {"spark.master": "local"}) is IS_LINUX


@pytest.mark.parametrize(
    ("environ", "known"),
    [
        ({"PYSPARK_PYTHON": "/opt/python"}, {}),
        ({"PYSPARK_DRIVER_PYTHON": "ipython"}, {}),
        ({}, {"spark.pyspark.python": "/opt/python"}),
        ({}, {"spark.master": "spark://there:7077"}),
        ({}, {"spark.remote": "sc://there"}),
    ],
)
def test_what_a_user_says_stands_and_a_clusters_python_is_its_own(
    environ: dict[str, str], known: dict[str, str]
) -> None:
    assert not may_be_warm(environ, known)


# --- real ones

HOLDER = """
import sys
from oncelog.spark.warm_python import warm_python
print(warm_python(), flush=True)
sys.stdin.read()
"""


class Program(NamedTuple):
    path: str
    holder_pid: int

    def forked(self, module: str) -> list[bytes]:
        """Processes below the holder that call themselves like the module; Linux keeps 15 bytes of a name."""
        names = [name_of(pid) for pid in below(self.holder_pid, list(pids()))]
        return [name for name in names if name == module.encode()[:15]]

    def forks(self) -> bool:
        """Until it has imported all, those who ask for a while in vain start their own."""
        with daemon(self.path) as running:
            work_and_let_go(running)
            found = bool(self.forked(LOOK_UP))
            running.end()
        return found


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    """Of a process that holds it as a driver would."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER], env=environment(), stdin=pipe, stdout=pipe) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        program = Program(holder.stdout.readline().decode().strip(), holder.pid)
        until(program.forks, "a process that has imported")
        yield program
        holder.stdin.close()


def test_a_forked_daemon_does_its_work_and_ends_without_a_word(program: Program) -> None:
    with daemon(program.path) as running:
        assert "oncelog" in work_and_let_go(running)
        assert program.forked(LOOK_UP), "nothing was forked"
        assert running.end() == ""
    assert not program.forked(LOOK_UP)


def test_the_program_says_pythons_version_and_runs_what_else_it_is_given(program: Program) -> None:
    """The first line is Spark's own; that no Python is started for it shows in that it needs none."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = "{}.{}\n".format(*sys.version_info)
    for code, environ in ((asked, {"LD_LIBRARY_PATH": "/nowhere", "PYTHONHOME": "/nowhere"}), (f"{asked};", {})):
        said = subprocess.run([program.path, "-c", code], env=environment(**environ), capture_output=True, text=True)
        assert (said.returncode, said.stdout) == (0, version), said.stderr


def test_a_daemon_with_another_environment_is_started_by_the_same_program(program: Program) -> None:
    with daemon(program.path, LD_BIND_NOW="1") as running:
        assert "oncelog" in work_and_let_go(running)
        assert not program.forked(LOOK_UP)
        assert running.end() == ""


def test_a_daemon_that_would_import_another_pyspark_is_started(program: Program, tmp_path: Path) -> None:
    (tmp_path / "pyspark").symlink_to(Path(pyspark.__file__).parent)
    with daemon(program.path, PYTHONPATH=os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])) as running:
        assert "oncelog" in work_and_let_go(running)
        assert not program.forked(LOOK_UP)


def test_workers_start_after_the_temporary_folder_was_swept(tmp_path: Path) -> None:
    """As systems do with what is days old."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=environment(TMPDIR=str(tmp_path)), stdin=pipe, stdout=pipe
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        path = holder.stdout.readline().decode().strip()
        for folder in tmp_path.iterdir():
            shutil.rmtree(folder)
        with daemon(path) as running:
            assert "oncelog" in work_and_let_go(running)
            assert running.end() == ""


def test_a_temporary_folder_with_too_long_a_name_for_a_socket_means_no_forking(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=environment(TMPDIR=str(long)), stdin=pipe, stdout=pipe
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == b"None\n"
        assert list(long.iterdir()) == []


def test_a_copy_of_the_driver_by_fork_leaves_its_program_alone() -> None:
    forking = HOLDER.replace(
        "sys.stdin.read()", "import os\npid = os.fork()\nif not pid: sys.exit()\nos.waitpid(pid, 0)"
    )
    asking = "\nprint(os.path.exists(warm_python()), flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", forking + asking], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"


DRAWING = """
import os, sys
import numpy
from oncelog.spark.forking import mind_forks
mind_forks()
for _ in range(2):
    if os.fork() == 0:
        print(numpy.random.random(), flush=True)
        os._exit(0)
    os.wait()
"""


def test_forked_workers_draw_different_random_numbers() -> None:
    order = [sys.executable, "-c", DRAWING]
    done = subprocess.run(order, env=environment(), capture_output=True, text=True, timeout=60)
    first, second = done.stdout.split()
    assert first != second, done.stderr


def test_a_forked_worker_looks_for_garbage(tmp_path: Path) -> None:
    """The process that it was forked from does not while it imports."""
    (tmp_path / "theirs.py").write_text("import gc; print(gc.isenabled())")
    program = """
import gc, os, sys
from oncelog.spark.forking import Request, run_as
gc.disable()
run_as(Request(["-m", "theirs"], dict(os.environ), sys.argv[1]))
"""
    order = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(order, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def test_loops_that_are_not_in_the_cache_are_not_compiled_while_workers_wait(tmp_path: Path) -> None:
    """Whatever the reason is: numba says when it begins to compile, and that ends it."""
    program = """
from oncelog.records import decode_loops, encode_loops
from oncelog.spark.forking import load_kept_loops

load_kept_loops()
for loop in (encode_loops.encode_records, decode_loops.decode_records):
    assert not loop.by_numba().signatures
"""
    nothing_kept = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=nothing_kept, check=True, timeout=60)


FIRST_BATCH = """
import sys

from oncelog.spark import forking

for prepare in forking.preparations():
    prepare()
known = set(sys.modules)

from pyspark.sql.streaming.datasource import ReadAllAvailable

from oncelog.spark.datasource import OncelogDataSource
from oncelog.spark.options import sink_options
from oncelog.spark.sink.driver import commit_batch
from oncelog.spark.sink.lane import LaneTask
from oncelog.spark.sink.lane_writer import write_lane

servers, topic = sys.argv[1:]
at = {"kafka.bootstrap.servers": servers}
source = OncelogDataSource({**at, "subscribe": topic, "startingOffsets": "earliest"})
reader = source.streamReader(source.schema())
start = reader.initialOffset()
end = reader.latestOffset(start, ReadAllAvailable())
rows = [each.select(["value"]) for part in reader.partitions(start, end) for each in reader.read(part)]
options = sink_options({**at, "topic": topic})
commit_batch(options, [write_lane(options, LaneTask("query", 0, 0, 0), rows)], 0)
ours = ("kio", "oncelog", "pandas", "pyarrow", "pyspark", "uvloop")
print(sorted(name for name in set(sys.modules) - known if name.partition(".")[0] in ours))
"""


def test_what_a_first_batch_needs_is_imported_before_workers_are_forked(
    server: ServerProcess, raw: RawConnection, topic: str
) -> None:
    produce(raw, new_topic(raw, topic), 0, 10)
    order = [sys.executable, "-c", FIRST_BATCH, server.bootstrap_servers, topic]
    done = subprocess.run(order, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.stdout == "[]\n", done.stdout + done.stderr
