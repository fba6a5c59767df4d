"""The surroundings of a sealed batch: the query of its frame, and the kind of storage that its path means.

In classic Spark the JVM is at hand and answers both. Under Spark Connect `foreachBatch` runs in a Python process of the
server's, which has no JVM: there the path must be a local one.
"""

import os
import re
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from oncelog.spark.option import BadOption
from oncelog.spark.sealed.arrow_files import ArrowFiles
from oncelog.spark.sealed.hadoop import HadoopStorage
from oncelog.spark.sealed.local import LocalStorage
from oncelog.spark.sealed.parquet_files import ParquetFiles
from oncelog.spark.sealed.storage import Storage
from oncelog.spark.sink.direct import QUERY

JOB_GROUP: Final = "spark.jobGroup.id"  # which Spark calls after the run, unless the user says otherwise
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONNECT: Final = "under Spark Connect"


def is_connect(frame: Any) -> bool:
    return not hasattr(frame, "_jdf")


def query_of(frame: Any) -> str:
    """The id of the query, which its checkpoint keeps over restarts."""
    if is_connect(frame):
        return _only_query(frame)
    query: str | None = frame.sparkSession.sparkContext.getLocalProperty(QUERY)
    if query is None:
        raise BadOption(
            "no streaming query calls this: write writeStream.foreachBatch(oncelog.spark.sealed(...)), and leave "
            "PYSPARK_PIN_THREAD as it is"
        )
    return query


def run_of(frame: Any) -> str | None:
    """The id of this run of the query, which brings each batch once; None where nobody says."""
    if is_connect(frame):
        active = frame.sparkSession.streams.active
        return str(active[0].runId) if len(active) == 1 else None
    group: str | None = frame.sparkSession.sparkContext.getLocalProperty(JOB_GROUP)
    return group if group is not None and _ID.fullmatch(group) else None


def planned_by(frame: Any, query: str, batch: int) -> str:
    """The time at which Spark planned the batch, in ms: it writes that down before it runs it, and finds it there when
    it runs it again. Empty where nobody says."""
    if is_connect(frame) or not _ID.fullmatch(query):
        return ""
    session = frame.sparkSession  # a copy of the query's, which shares its queries
    running = session._jsparkSession.sharedState().activeStreamingQueries()
    execution = running.get(session._jvm.java.util.UUID.fromString(query))
    written = None if execution is None else execution.offsetLog().get(batch)
    if written is None or written.isEmpty() or written.get().metadataOpt().isEmpty():
        return ""
    return str(written.get().metadataOpt().get().batchTimestampMs())


def _only_query(frame: Any) -> str:
    """Spark Connect does not tell a batch which query it is of, but which queries the session runs."""
    active = [str(query.id) for query in frame.sparkSession.streams.active]
    if len(active) != 1:
        raise BadOption(
            f"{_CONNECT} a session can run one query with a sealed sink, as a batch is not told which query it is of, "
            f"and this session runs {len(active)}: give each query a session of its own"
        )
    return active[0]


def storage_of(frame: Any, path: str) -> tuple[Storage, ArrowFiles | ParquetFiles]:
    """Files of this machine are written and read by tasks themselves, all others by Spark."""
    if is_connect(frame):
        local = LocalStorage(_local_by_name(path))
        return local, ArrowFiles(local)
    session = frame.sparkSession
    conf = session._jsparkSession.sessionState().newHadoopConf()
    found = session._jvm.org.apache.hadoop.fs.Path(path)
    root = found.getFileSystem(conf).makeQualified(found)
    if root.toUri().getScheme() == "file":
        local = LocalStorage(str(root.toUri().getPath()))
        return local, ArrowFiles(local)
    remote = HadoopStorage(session._jvm, conf, root)
    return remote, ParquetFiles(remote, session._jvm, conf)


def _local_by_name(path: str) -> str:
    parts = urlsplit(path)
    if parts.scheme not in ("", "file") or parts.netloc:
        raise BadOption(
            f"path={path!r}: {_CONNECT} a sealed sink needs a local path that all machines of the cluster see; other "
            "file systems are reached through the JVM, which foreachBatch does not have there"
        )
    name = unquote(parts.path) if parts.scheme else path
    if not os.path.isabs(name):
        raise BadOption(f"path={path!r}: {_CONNECT} a sealed sink needs an absolute path, as it runs on the server")
    return name
