"""What a sealed batch finds out about where it runs: whose frame this is, and what kind of storage its path means.

In classic Spark the JVM is at hand and answers both. Under Spark Connect `foreachBatch` runs in a Python process of the
server's, which has no JVM: there the path must be a local one.
"""

import os
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from oncelog.spark.option import BadOption
from oncelog.spark.sink.direct import QUERY

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


def _only_query(frame: Any) -> str:
    """Spark Connect does not tell a batch which query it is of, but which queries the session runs."""
    active = [str(query.id) for query in frame.sparkSession.streams.active]
    if len(active) != 1:
        raise BadOption(
            f"{_CONNECT} a session can run one query with a sealed sink, as a batch is not told which query it is of, "
            f"and this session runs {len(active)}: give each query a session of its own"
        )
    return active[0]


def local_path(frame: Any, path: str) -> str | None:
    """The folder, if it is one of this machine; None where another file system has it."""
    if is_connect(frame):
        return _local_by_name(path)
    uri = qualified(frame, path).toUri()
    return str(uri.getPath()) if uri.getScheme() == "file" else None


def qualified(frame: Any, path: str) -> Any:
    """Spark's own reading of a path."""
    found = frame.sparkSession._jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(hadoop_conf(frame)).makeQualified(found)


def hadoop_conf(frame: Any) -> Any:
    return frame.sparkSession._jsparkSession.sessionState().newHadoopConf()


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
