"""The nodes of a tree, and what a change makes of them. Pure: who keeps them decides when a change counts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from oncelog.cluster.tree import (
    ABSENT,
    FOLDERS,
    MOST_NODES,
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
NOTHING: Writes = {}


class Nodes:
    def __init__(self) -> None:
        self._folders: dict[str, dict[str, Stored]] = {folder: {} for folder in ("", *FOLDERS)}

    def __len__(self) -> int:
        return sum(map(len, self._folders.values()))

    def get(self, path: str) -> Stored | None:
        folder, name = check_path(path)
        return self._folders[folder].get(name)

    def children(self, folder: str) -> dict[str, Node]:
        """Of a folder by its name alone."""
        return {name: stored.node for name, stored in sorted(self._folders[folder].items())}

    def judge(self, changes: Sequence[Change], session: int, ahead: Writes = NOTHING) -> dict[str, Stored | None]:
        """What is to be written; nothing is yet. `ahead` is what will be by then. Raises `Outdated` and `Refused`."""
        writes: dict[str, Stored | None] = {}
        for change in changes:
            path = change.path
            old = writes[path] if path in writes else ahead[path] if path in ahead else self.get(path)
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
        if len(self) + len(ahead) + len(writes) > MOST_NODES and self._count_after({**ahead, **writes}) > MOST_NODES:
            raise Refused(f"a tree of more than {MOST_NODES:,} nodes")
        return writes

    def _count_after(self, writes: Writes) -> int:
        made = sum(stored is not None and self.get(path) is None for path, stored in writes.items())
        removed = sum(stored is None and self.get(path) is not None for path, stored in writes.items())
        return len(self) + made - removed

    def write(self, writes: Writes) -> None:
        for path, stored in writes.items():
            folder, name = check_path(path)
            if stored is None:
                self._folders[folder].pop(name, None)
            else:
                self._folders[folder][name] = stored

    def items(self) -> Iterator[tuple[str, Stored]]:
        """By path."""
        for folder, nodes in self._folders.items():
            for name, stored in nodes.items():
                yield f"/{folder}/{name}" if folder else f"/{name}", stored

    def without(self, session: int) -> dict[str, Stored | None]:
        """What is to be written when it is over."""
        return {path: None for path, stored in self.items() if stored.owner == session}
