"""Spark's configuration: what the caller said, what the user has set elsewhere, and what a session gets where neither
says anything. Plain mappings; nothing here knows PySpark."""

import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from oncelog.arguments import as_number, check_kind

# The short names of spark-submit, and the environment variable that holds its arguments where Python starts it.
SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SHORT: Final = {
    "--archives": "spark.archives",
    "--conf": "",
    "-c": "",
    "--deploy-mode": "spark.submit.deployMode",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-memory": "spark.driver.memory",
    "--jars": "spark.jars",
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--packages": "spark.jars.packages",
    "--properties-file": "",
    "--remote": "spark.remote",
}
_FILE: Final = "--properties-file"
_VARIABLES: Final = {"MASTER": "spark.master", "SPARK_REMOTE": "spark.remote"}
_KEYWORDS: Final = {"master": "spark.master", "remote": "spark.remote"}

# Batch queries get fewer partitions than this from adaptive execution anyway; streams with state would keep 200 state
# stores, each a file a batch. A fixed number, so that a stream's checkpoint means the same on every machine.
LOCAL_SHUFFLE_PARTITIONS: Final = "8"
# Spark keeps passwords and tokens out of plans, its page and its event log by their names, and `url` by this setting. A
# private key that is given as text has neither name.
REDACTED: Final = "spark.sql.redaction.options.regex"
REDACTED_OPTIONS: Final = "(?i)url|ssl[.]key[.]pem|keystore[.]key|private key"
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
# Between the JVM and its Python workers. Arrow batches are about as large; with Spark's 64 KB a small row that is read
# costs a tenth more.
BUFFER_BYTES: Final = str(1 << 20)
# Spark asks for each cell whether it is null before it reads it, at a row that is there; Arrow would check both again.
UNCHECKED_ARROW: Final = ["-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false"]


def said_by_caller(conf: Mapping[str, object] | None, keywords: Mapping[str, object]) -> dict[str, str]:
    """The caller's settings by Spark's names. `spark__ui__enabled=True` as a keyword says `spark.ui.enabled`."""
    conf = {} if conf is None else conf
    check_kind("conf", conf, Mapping, 'a mapping by the names of Spark, such as {"spark.driver.memory": "4g"}')
    named = [(name, name, value) for name, value in conf.items()]
    named += [(name, _key(name), value) for name, value in keywords.items()]
    for name, key, _ in named:
        if not key.startswith("spark."):
            raise ValueError(
                f"{name!r} is no setting of Spark: their names begin with `spark.` (as a keyword, `spark__`); "
                f"`master` and `remote` may be said in short."
            )
    return {key: _text(name, value) for name, key, value in named if value is not None}


def _key(keyword: str) -> str:
    return _KEYWORDS.get(keyword) or (keyword if "." in keyword else keyword.replace("__", "."))


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path) or as_number(value) is not None:
        return str(value)
    raise ValueError(f"{name} = {value!r}: a setting of Spark is a string, a number or a boolean.")


def set_by_user(environ: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """The settings of spark-defaults.conf, PYSPARK_SUBMIT_ARGS and variables, for a JVM that is yet to be started."""
    arguments = _submit_arguments(environ)
    file = Path(arguments.pop(_FILE, conf_folder(environ, spark_home) / "spark-defaults.conf"))
    lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
    found = dict(_properties(lines))
    for variable, key in _VARIABLES.items():
        if environ.get(variable):
            found[key] = environ[variable]
    return found | arguments


def conf_folder(environ: Mapping[str, str], spark_home: Path) -> Path:
    return Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf")


def _submit_arguments(environ: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    words = iter(shlex.split(environ.get(SUBMIT_ARGUMENTS, "")))
    for word in words:
        name, equals, value = word.partition("=")
        if name not in _SHORT:
            continue
        if not equals:
            value = next(words, "")
        if name == _FILE:
            found[_FILE] = value
        elif _SHORT[name]:
            found[_SHORT[name]] = value
        else:
            key, _, said = value.partition("=")
            found[key] = said
    return found


def _properties(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        ends = [text.index(mark) for mark in " \t=:" if mark in text]
        end = min(ends, default=len(text))
        yield text[:end], text[end:].lstrip(" \t=:")


def is_local(known: Mapping[str, str]) -> bool:
    """Whether the JVM beside this process does all the work, and nobody said otherwise."""
    master = known.get("spark.remote") or known.get("spark.master", "local")
    return master == "local" or master.startswith("local[")


def defaults(known: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session where the user gave none.

    Without a master Spark runs in this process' JVM on all cores, for nobody but this process: nothing of it listens
    beyond the loopback address, where firewalls, VPNs and odd host names have no say, and there is no web page, which
    would take a port and half a second. On a cluster these are the cluster's business.

    Between the JVM and Python's workers go Unix sockets, which Spark leaves off: over TCP the small pieces by which a
    task begins wait 40 ms for an acknowledgement that the receiver holds back (Nagle's algorithm).
    """
    wanted = {} if "spark.remote" in known else {"spark.master": "local[*]"}
    wanted[REDACTED] = REDACTED_OPTIONS
    if is_local(known):
        wanted["spark.ui.enabled"] = "false"
        wanted["spark.sql.shuffle.partitions"] = LOCAL_SHUFFLE_PARTITIONS
        wanted["spark.buffer.size"] = BUFFER_BYTES
        if hasattr(socket, "AF_UNIX"):
            wanted[UNIX_SOCKETS] = "true"
        if not environ.get("SPARK_LOCAL_IP") and not environ.get("SPARK_LOCAL_HOSTNAME"):
            wanted["spark.driver.host"] = "127.0.0.1"
            wanted["spark.driver.bindAddress"] = "127.0.0.1"
    return {key: value for key, value in wanted.items() if key not in known}


def has_own_logging(known: Mapping[str, str], environ: Mapping[str, str], spark_home: Path) -> bool:
    """Whether the user has said how Spark is to log: by a file in the conf folder, a Java option, or a variable."""
    folder = conf_folder(environ, spark_home)
    options = known.get("spark.driver.extraJavaOptions", "") + known.get("spark.driver.defaultJavaOptions", "")
    return (
        any(folder.glob("log4j2*"))
        or "log4j" in options
        or bool(environ.get("LOG4J_CONFIGURATION_FILE"))
        or known.get("spark.log.structuredLogging.enabled", "false").lower() == "true"
    )
