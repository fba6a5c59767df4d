"""A folder of this machine, or one that all machines mount."""

import errno
import os
import shutil
import uuid
from pathlib import Path
from typing import Final

from oncelog.spark.sealed.manifest import MAX_BYTES, SealedError

# Errors that have nothing to do with links.
_NOT_WRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)


class LocalStorage:
    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)

    def names(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise self._is_file() from None

    def read(self, name: str) -> bytes | None:
        try:
            with open(self.where(name), "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise self._is_file() from None
        if len(data) > MAX_BYTES:
            raise SealedError(f"{self.where(name)} has more than {MAX_BYTES} bytes: it is not of a sealed sink")
        return data

    def create(self, name: str, data: bytes) -> bool:
        """A link, not a rename: a rename puts itself in the place of what another process has just published."""
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise SealedError(
                f"path={self.folder!r} cannot be made ({error}): a sealed sink needs a folder that driver and "
                "executors can write to"
            ) from error
        unfinished = self.where(f".{name}.{uuid.uuid4().hex}")
        try:
            with open(unfinished, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(unfinished, self.where(name))
        except FileExistsError:
            return False
        except FileNotFoundError:
            # Another driver, which has come first, took the unfinished one for a leftover.
            if self.read(name) is None:
                raise
            return False
        except OSError as error:
            if error.errno in _NOT_WRITABLE:
                raise SealedError(f"{self.where(name)} cannot be written: {error}") from error
            raise SealedError(
                f"{self.where(name)} cannot be created as by the first of several ({error}): a sealed sink needs a "
                "path where hard links are possible"
            ) from error
        finally:
            Path(unfinished).unlink(missing_ok=True)
        return True

    def remove(self, name: str) -> None:
        path = self.where(name)
        try:
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                Path(path).unlink(missing_ok=True)
        except FileNotFoundError:
            pass  # another driver is removing the same folder

    def _is_file(self) -> SealedError:
        return SealedError(f"path={self.folder!r} is a file, or lies in one; a sealed sink needs a folder of its own")

    def where(self, name: str) -> str:
        return os.path.join(self.folder, name)
