"""The state of a cell as the user's code sees it: what changed since the last commit, over what is committed.

Each of the three layers has entries, and over them what came as columns: those are put in place among the entries only
where somebody asks for one that may be there. So a run of records costs no Python object for each key that it changes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from oncelog.flow.journal import apply
from oncelog.flow.messages import Changes, ColumnChanges

MOST_BEHIND: Final = 4  # times as many rows of columns as there are keys, before they are put in place
LEAST_BEHIND: Final = 1_000
MOST_BEHIND_BYTES: Final = 64 << 20  # far below the 2 GiB that an offset of Arrow reaches


class Entries(Mapping[bytes, bytes]):
    def __init__(self, committed: dict[bytes, bytes]) -> None:
        self.committed = committed
        self.behind: list[ColumnChanges] = []  # of it: what is not put in place yet
        self.under_way: dict[bytes, bytes | None] = {}  # in a commit that is not acknowledged yet
        self.columns_under_way: ColumnChanges | None = None
        self.count_under_way = 0  # records of that commit; a key may have one among the entries and one in a column
        self.changed: dict[bytes, bytes | None] = {}  # for the next one
        self.columns: ColumnChanges | None = None

    def __getitem__(self, key: bytes) -> bytes:
        found: bytes | None = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def get(self, key: bytes, default: Any = None) -> Any:
        self.settle()
        return self._get(key, default)

    def unseen(self, key: bytes, owner: object) -> bytes | None:
        """The entry of a key that this owner of columns has not met yet: it is in none of them."""
        pieces = *self.behind[:1], self.columns_under_way, self.columns
        if any(each is not None and each.owner is not owner for each in pieces):
            self.settle()
        found: bytes | None = self._get(key)
        return found

    def _get(self, key: bytes, default: Any = None) -> Any:
        for layer in (self.changed, self.under_way):
            if key in layer:
                value = layer[key]
                return default if value is None else value
        return self.committed.get(key, default)

    def __iter__(self) -> Iterator[bytes]:
        self.settle()
        over = self.under_way | self.changed
        yield from (key for key in self.committed if key not in over)
        yield from (key for key, value in over.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, changes: Changes) -> None:
        """Take in the changes of a run."""
        if isinstance(changes, ColumnChanges):
            if self.columns is not None and self.columns.owner is not changes.owner:
                self.settle()
            self.columns = changes if self.columns is None else changes.over([self.columns])
        elif changes:
            if self.columns is not None:
                self.settle()
            self.changed.update(changes)

    def leave(self) -> dict[bytes, bytes | None]:
        """All changes so far go into a commit."""
        self.under_way, self.changed = self.changed, {}
        self.columns_under_way, self.columns = self.columns, None
        self.count_under_way = len(self.under_way) + len(self.columns_under_way or ())
        return self.under_way

    def stored(self) -> None:
        if self.under_way:
            self._put_in_place()
            apply(self.under_way, self.committed)
            self.under_way = {}
        columns, self.columns_under_way = self.columns_under_way, None
        if columns is not None:
            if self.behind and self.behind[0].owner is not columns.owner:
                self._put_in_place()
            self.behind.append(columns)
            is_long = sum(map(len, self.behind)) > LEAST_BEHIND + MOST_BEHIND * columns.keys_known
            if is_long or sum(each.size_bytes for each in self.behind) > MOST_BEHIND_BYTES:
                self._put_in_place()

    def settle(self) -> None:
        """All columns."""
        self._put_in_place()
        if self.columns_under_way is not None:
            self.under_way.update(self.columns_under_way)
            self.columns_under_way = None
        if self.columns is not None:
            self.changed.update(self.columns)
            self.columns = None

    def _put_in_place(self) -> None:
        if self.behind:
            *before, last = self.behind
            self.committed.update(last.over(before).rows())
            self.behind.clear()

    def count_committed(self) -> int:
        """Count the entries, after what came as columns is put in place: a key may stand there already."""
        self._put_in_place()
        return len(self.committed)
