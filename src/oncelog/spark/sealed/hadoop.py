"""Whatever Spark can write checkpoints to, by Spark's own checkpoint file manager: HDFS, object stores, ... Asked over
py4j, so it is for drivers that have a JVM.

How much "created by the first that comes" is worth there is up to the file system, as it is for Spark's own offset log:
HDFS keeps it; a store that can only rename has a moment in which two may believe it. What is published is therefore
read back before it is used.
"""

from typing import Any, Final

from py4j.protocol import Py4JJavaError

from oncelog.spark.sealed.manifest import MAX_BYTES, SealedError

_EXISTS: Final = "FileAlreadyExists"
_ABSENT: Final = "FileNotFound"
_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$"


class HadoopStorage:
    """`root` is a qualified `Path` of Hadoop's, `conf` its configuration, `jvm` py4j's view."""

    def __init__(self, jvm: Any, conf: Any, root: Any) -> None:
        self._jvm = jvm
        self._root = root
        self._files = root.getFileSystem(conf)
        # A Scala object behind an interface: its companion's only instance.
        companion = jvm.java.lang.Class.forName(
            _MANAGER, True, jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )
        self.manager = companion.getField("MODULE$").get(None).create(root, conf)

    def names(self) -> list[str]:
        try:
            return [status.getPath().getName() for status in self._files.listStatus(self._root)]
        except Py4JJavaError as error:
            if _is(error, _ABSENT):
                return []
            raise

    def read(self, name: str) -> bytes | None:
        try:
            stream = self._files.open(self.path(name))
        except Py4JJavaError as error:
            if _is(error, _ABSENT):
                return None
            raise
        try:
            data = bytes(stream.readNBytes(MAX_BYTES + 1))
        finally:
            stream.close()
        if len(data) > MAX_BYTES:
            raise SealedError(f"{self.where(name)} has more than {MAX_BYTES} bytes: it is not of a sealed sink")
        return data

    def create(self, name: str, data: bytes) -> bool:
        self._files.mkdirs(self._root)
        if self._files.exists(self.path(name)):
            return False
        # A writer that comes second leaves an unfinished file behind from here on, which a later batch removes.
        try:
            stream = self.manager.createAtomic(self.path(name), False)
        except Py4JJavaError as error:
            if _is(error, _EXISTS):
                return False
            raise
        try:
            stream.write(data)
            stream.close()
        except Py4JJavaError as error:
            if _is(error, _EXISTS):
                return False
            stream.cancel()
            raise
        return True

    def remove(self, name: str) -> None:
        try:
            self._files.delete(self.path(name), True)
        except Py4JJavaError as error:
            if not _is(error, _ABSENT):
                raise OSError(str(error.java_exception)) from error

    def where(self, name: str) -> str:
        return str(self.path(name).toString()) if name else str(self._root.toString())

    def path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes of a folder's files; none where it is not there."""
        try:
            listed = self._files.listStatus(self.path(folder))
        except Py4JJavaError as error:
            if _is(error, _ABSENT):
                return {}
            raise
        return {status.getPath().getName(): int(status.getLen()) for status in listed}


def _is(error: Py4JJavaError, kind: str) -> bool:
    return kind in error.java_exception.getClass().getName()
