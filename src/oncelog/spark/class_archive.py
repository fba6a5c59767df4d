"""An archive of the classes that Spark loads: a JVM maps it into memory and need not read, check and link them anew.

A JVM that finds another Java, other JARs or another class path than those of the archive goes on as if there were none.
The launcher (`java.py`) names the archive to Spark's JVM, and where a rehearsal is to make one, it has the JVM write
down which classes it loads, and then has Java archive them.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from oncelog.cache_folder import cache_folder, make_cache_folder

# In a rehearsal: the folder for what the launcher makes, which are these files.
RECORD_IN: Final = "ONCELOG_RECORD_CLASSES_IN"
CLASSES, ARCHIVE, SAID = "classes", "archive.jsa", "said"
_MADE, _MAKING = "spark-*.jsa", "making-"
_TAKES_AT_MOST_S: Final = 900


class NoArchive(RuntimeError):
    """There is no archive; the text says why."""


def archive_of(java_home: Path, spark_home: Path) -> Path:
    """The path of the archive, once it was made, for this Java and this Spark."""
    key = hashlib.sha256(f"{java_home.resolve()}\n{spark_home.resolve()}".encode()).hexdigest()[:16]
    return cache_folder() / _MADE.replace("*", key)


def make(archive: Path, servers: str) -> None:
    """Make it in the place of the archive that is there: there is one at most."""
    try:
        make_cache_folder(archive.parent)
    except OSError as error:
        raise NoArchive(str(error)) from error
    for left in archive.parent.glob(f"{_MAKING}*"):  # by one that was killed
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(dir=archive.parent, prefix=_MAKING) as folder:
        said = Path(folder, SAID)
        with open(said, "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "oncelog.spark.rehearsal", servers],
                env={**os.environ, RECORD_IN: folder},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
            try:
                process.wait(_TAKES_AT_MOST_S)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # with its JVM
                process.wait()
                raise
        if process.returncode or not Path(folder, ARCHIVE).exists():
            raise NoArchive(said.read_text(errors="replace")[-3000:])
        for old in archive.parent.glob(_MADE):
            old.unlink(missing_ok=True)
        Path(folder, ARCHIVE).replace(archive)
