"""`oncelog.spark.session(...)`: a SparkSession that works from a virtual environment, quietly, and shows its progress.

Whatever the user has set wins: what the call says, then spark-submit, spark-defaults.conf and the environment, and
only then what a session gets here. A session that is running already is taken as it is.
"""

import atexit
import importlib.util
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType
from typing import Any, Final
from urllib.parse import urlsplit

from oncelog.arguments import check_kind
from oncelog.cache_folder import NoCacheFolder
from oncelog.spark.class_archive import archive_of
from oncelog.spark.conf import UNCHECKED_ARROW, defaults, has_own_logging, is_local, said_by_caller, set_by_user
from oncelog.spark.java import UNPACKED_PYSPARK, VECTOR_MODULE, ending_unconnected, find_java, launching_home
from oncelog.spark.quiet import quiet_exceptions
from oncelog.spark.warm_python import VARIABLES, may_be_warm, warm_python
from oncelog.spark.watching import is_connect, watch

OLDEST_SPARK: Final = (4, 2)
# The name of the environment's archive on the executors, as in Spark's own guide.
SHIPPED_AS: Final = "environment"
NEEDED_TO_CONNECT: Final = ("grpc", "grpc_status", "pandas", "pyarrow", "zstandard")
_log: Final = logging.getLogger("oncelog.spark")
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


class SparkMissing(ImportError):
    """A package is not installed; the text says how to get it."""


def session(
    app_name: str | None = None,
    conf: Mapping[str, object] | None = None,
    *,
    progress: bool = True,
    **keywords: object,
) -> Any:
    """The SparkSession of this process, a new one where there is none.

    Settings of Spark are given by their names, `session("job", {"spark.sql.shuffle.partitions": 2})`, or as keywords
    with two underscores for each dot, `spark__sql__shuffle__partitions=2`; `master` and `remote` may be said in short.
    `progress=False`: neither bar nor lines.
    """
    check_kind("app_name", app_name, (str, NoneType), "a text")
    spark_home = _require_pyspark()
    said = said_by_caller(conf, keywords)
    if app_name is not None:
        said.setdefault("spark.app.name", app_name)
    running = _running()
    if running is not None:
        spark = _joined(running, said)
    elif _is_remote(said):
        spark = _connected(said)
    elif _has_jvm():
        known = _conf_of_jvm() | said
        with _environment(_warm(known) if "PYSPARK_GATEWAY_PORT" not in os.environ else {}):
            spark = _built_with(said, defaults(known, os.environ))
    else:
        spark = _started(said, spark_home)
    watch(spark, progress)
    return spark


def _require_pyspark() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkMissing('PySpark is not installed: `pip install "oncelog[spark]"`.')
    import pyspark

    version = tuple(int(number) for number in pyspark.__version__.split(".")[:2])
    if version < OLDEST_SPARK:
        raise SparkMissing(f'PySpark {pyspark.__version__} is too old: `pip install "oncelog[spark]"` brings 4.2.')
    return Path(found.origin).parent


# --- which session it is ----------------------------------------------------------------------------------------------


def _is_remote(said: Mapping[str, str]) -> bool:
    """Whether this process is to be the client of a Spark Connect server elsewhere."""
    if "spark.master" in said:
        return False
    return said.get("spark.remote", os.environ.get("SPARK_REMOTE", "")).startswith("sc://")


def _running() -> Any:
    """The session that this process has already: as a client of Spark Connect, or with the JVM beside it."""
    if "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        from pyspark.sql.connect.session import SparkSession as Client

        client = Client._default_session
        return None if client is None or client.is_stopped else client
    from pyspark.sql import SparkSession

    spark = SparkSession._instantiatedSession
    return None if spark is None or spark._sc._jsc is None else spark


def _has_jvm() -> bool:
    """Started by spark-submit, or by a session that was stopped since."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _conf_of_jvm() -> dict[str, str]:
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())


def _joined(spark: Any, said: Mapping[str, str]) -> Any:
    """The session that is there, with what can still be set; PySpark would complain of all that is said."""
    too_late = []
    for key, value in said.items():
        if key == "spark.remote":
            is_same = is_connect(spark) and urlsplit(value).hostname in (spark.client.host, None)
            too_late += [] if is_same else [key]
        elif spark.conf.isModifiable(key):
            spark.conf.set(key, value)
        elif key != "spark.app.name" and spark.conf.get(key, None) != value:
            too_late.append(key)
    if not is_connect(spark):  # a thread without one could not write: Spark would not find the format `oncelog`
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
    if too_late:
        _log.warning("a Spark session is running already, so these stay as they are: %s", ", ".join(too_late))
    return spark


def _built(settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def _built_with(said: Mapping[str, str], ours: Mapping[str, str]) -> Any:
    """Build the session. With a Connect server in the JVM beside it, PySpark sets all settings twice, and complains of
    the second time."""
    with warnings.catch_warnings():
        for key in ours:
            warnings.filterwarnings("ignore", message=f"Failed to set {re.escape(key)} ")
        return _built({**ours, **said})


def _connected(said: Mapping[str, str]) -> Any:
    """The client of a server elsewhere: which Java, which interpreter, where it logs are the server's business."""
    missing = [package for package in NEEDED_TO_CONNECT if importlib.util.find_spec(package) is None]
    if missing:
        raise SparkMissing(f'Spark Connect needs {", ".join(missing)}: `pip install "oncelog[spark,connect]"`.')
    quiet_exceptions()
    return _built(said)


# --- starting one -----------------------------------------------------------------------------------------------------


def _started(said: Mapping[str, str], spark_home: Path) -> Any:
    home = Path(os.environ.get("SPARK_HOME") or spark_home)
    known = set_by_user(os.environ, home) | dict(said)
    ours = defaults(known, os.environ)
    everything = known | ours
    if "spark.driver.defaultJavaOptions" not in known:
        java_options = UNCHECKED_ARROW if is_local(everything) else []
        if not has_own_logging(known, os.environ, home):
            java_options = [*java_options, f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"]
            quiet_exceptions()
        ours["spark.driver.defaultJavaOptions"] = " ".join(java_options)
    # Spark's own bar draws on any stderr; ours knows a terminal from a log.
    if "spark.ui.showConsoleProgress" not in known:
        ours["spark.ui.showConsoleProgress"] = "false"
    warm = _warm(everything)
    python = os.environ["PYSPARK_PYTHON"] = _python(everything)
    is_unpacked = is_local(everything) and python == sys.executable and home.resolve() == spark_home.resolve()
    unpacked = {UNPACKED_PYSPARK: "yes"} if is_unpacked else {}
    with _environment(_variables(everything, home, python) | unpacked | warm), ending_unconnected():
        spark = _built_with(said, ours)
    atexit.register(_stop, spark, os.getpid())
    return spark


def _warm(known: Mapping[str, str]) -> dict[str, str]:
    """The Python of the workers, for as long as it takes to start a session."""
    program = warm_python() if may_be_warm(os.environ, known) else None
    return {} if program is None else dict.fromkeys(VARIABLES, str(program))


def _python(known: Mapping[str, str]) -> str:
    """The interpreter of executors, which Spark also plans `format("oncelog")` with, here."""
    said = os.environ.get("PYSPARK_PYTHON") or known.get("spark.pyspark.python")
    if said is None and not is_local(known):
        shipped = [archive.partition("#")[2] for archive in known.get("spark.archives", "").split(",")]
        if SHIPPED_AS in shipped:
            said = f"./{SHIPPED_AS}/bin/python"
    if said is None:
        return sys.executable
    if said.startswith("./") and not os.access(said, os.X_OK):
        raise SparkMissing(
            f"executors run {said}, and Spark plans with the same path here, where there is none: "
            f"unpack the archive into {Path(said).parts[0]!r} of the folder that you start from."
        )
    return said


def _variables(known: Mapping[str, str], spark_home: Path, python: str) -> dict[str, str]:
    """The variables for the JVM and what it starts, for as long as it takes to start it."""
    found = {
        "SPARK_HOME": str(spark_home),
        # A `jupyter` in there would be asked to plan reads; the JVM has no other use for it.
        "PYSPARK_DRIVER_PYTHON": python,
        "JAVA_HOME": str(_java_home(known, spark_home)),
    }
    if known.get("spark.driver.bindAddress") == "127.0.0.1":
        found["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
    return found


def _java_home(known: Mapping[str, str], spark_home: Path) -> Path:
    java = find_java(os.environ)
    options = known.get("spark.driver.extraJavaOptions", "") + known.get("spark.driver.defaultJavaOptions", "")
    if os.name == "nt" or VECTOR_MODULE in options:
        return java.home
    try:
        archive = archive_of(java.home, spark_home)
    except NoCacheFolder:
        archive = None
    return launching_home(java, archive)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _stop(spark: Any, owner: int) -> None:
    """Stop the session at the end of the process: an orderly end lets queries' last reports arrive. A copy by fork()
    leaves it alone."""
    if os.getpid() != owner or _running() is not spark:
        return
    from py4j.protocol import Py4JNetworkError

    with suppress(ConnectionError, Py4JNetworkError):  # its JVM was killed, which its user has been told
        spark.stop()
