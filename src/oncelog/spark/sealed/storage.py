"""The one seam to where sealed batches lie: a flat place of named files and folders, where a file can be created only
by the first that comes. `local.py` is a folder of this machine, `hadoop.py` everything else that Spark can write to."""

from typing import Protocol


class Storage(Protocol):
    def names(self) -> list[str]:
        """Files and folders that are there; none where the path itself is not."""
        ...

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Whole and at once, or not at all; False where one is there already."""
        ...

    def remove(self, name: str) -> None:
        """A file, or a folder with what it holds. No complaint where it is gone."""
        ...

    def where(self, name: str) -> str:
        """Its place in full, for messages and for Spark."""
        ...
