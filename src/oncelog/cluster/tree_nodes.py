"""The nodes of a tree, and what a change makes of them. Pure: who keeps them decides when a change counts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oncelog.cluster.tree import (
    ABSENT,
    FOLDERS,
    MOST_NODES,
    MOST_TREE_BYTES,
    Change,
    Check,
    Node,
    Outdated,
    Put,
    PutEphemeral,
    Refused,
    Remove,
    check_path,
)

NOBODY = 0  # no session


class Stored(NamedTuple):
    node: Node
    owner: int = NOBODY  # the session that it is gone with


Writes = Mapping[str, Stored | None]


class Nodes:
    def __init__(self) -> None:
        self._folders: dict[str, dict[str, Stored]] = {folder: {} for folder in ("", *FOLDERS)}
        self._count = 0
        self._size_bytes = 0

    def get(self, path: str) -> Stored | None:
        folder, name = check_path(path)
        return self._folders[folder].get(name)

    def children(self, folder: str) -> dict[str, Node]:
        """The children of a folder, by its name alone."""
        return {name: stored.node for name, stored in sorted(self._folders[folder].items())}

    def items(self) -> Iterator[tuple[str, Stored]]:
        """The nodes, by path."""
        for folder, nodes in self._folders.items():
            for name, stored in nodes.items():
                yield f"/{folder}/{name}" if folder else f"/{name}", stored

    def judge(self, changes: Sequence[Change], session: int) -> Writes:
        """The writes that the changes need; nothing is written yet. Raises `Outdated` and `Refused`."""
        writes: dict[str, Stored | None] = {}
        for change in changes:
            path = change.path
            old = writes[path] if path in writes else self.get(path)
            expected = ABSENT if isinstance(change, PutEphemeral) else change.version
            if expected != (ABSENT if old is None else old.node.version):
                raise Outdated(path)
            match change:
                case Put():
                    owner = NOBODY if old is None else old.owner
                    writes[path] = Stored(Node(change.value, change.version + 1), owner)
                case PutEphemeral():
                    writes[path] = Stored(Node(change.value, 0), session)
                case Remove():
                    writes[path] = None
                case Check():
                    pass
        count, size_bytes = self._growth(writes)
        if count > 0 and self._count + count > MOST_NODES:
            raise Refused(f"a tree of more than {MOST_NODES:,} nodes")
        if size_bytes > 0 and self._size_bytes + size_bytes > MOST_TREE_BYTES:
            raise Refused(f"a tree of more than {MOST_TREE_BYTES:,} bytes")
        return writes

    def write(self, writes: Writes) -> None:
        count, size_bytes = self._growth(writes)
        self._count += count
        self._size_bytes += size_bytes
        for path, stored in writes.items():
            folder, name = check_path(path)
            if stored is None:
                self._folders[folder].pop(name, None)
            else:
                self._folders[folder][name] = stored

    def _growth(self, writes: Writes) -> tuple[int, int]:
        """The growth in nodes and bytes of values."""
        there = [stored for stored in map(self.get, writes) if stored is not None]
        coming = [stored for stored in writes.values() if stored is not None]
        return len(coming) - len(there), _size_of(coming) - _size_of(there)

    def without(self, session: int) -> Writes:
        """The writes that end the session."""
        return {path: None for path, stored in self.items() if stored.owner == session}


def _size_of(some: Iterable[Stored]) -> int:
    return sum(len(stored.node.value) for stored in some)
