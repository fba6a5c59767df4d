"""How much of what came as columns waits to be put in place among the entries."""

from collections.abc import Iterator, Sequence

import pytest

from oncelog.flow import entries
from oncelog.flow.entries import LEAST_BEHIND, Entries
from oncelog.flow.messages import ColumnChanges, Outputs

OWNER = object()


class Columns(ColumnChanges):
    owner = OWNER
    keys_known = 1_000_000

    def __init__(self, found: dict[bytes, bytes]) -> None:
        self.found = found

    def __getitem__(self, key: bytes) -> bytes:
        return self.found[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self.found.items())

    def over(self, before: Sequence[ColumnChanges]) -> "Columns":
        return Columns({key: value for each in (*before, self) for key, value in each.rows()})

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.found.items())

    def records(self, before: Outputs, behind: Outputs) -> Outputs:
        raise AssertionError("nothing is sent here")


def test_columns_wait_up_to_a_number_of_bytes_however_few_rows_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next step joins all of them, and Arrow counts the bytes of a column by 32 bits."""
    monkeypatch.setattr(entries, "MOST_BEHIND_BYTES", 5_000)
    state: dict[bytes, bytes] = {}
    known = Entries(state)
    most_bytes = 0
    for number in range(100):
        known.add(Columns({b"%d" % (number % 10): b"%d" % number * 500}))
        known.leave()
        known.stored()
        most_bytes = max(most_bytes, sum(each.size_bytes for each in known.behind))
    assert 3_000 < most_bytes <= 5_000
    assert known.count_committed() == 10 < LEAST_BEHIND
    assert state == {b"%d" % (number % 10): b"%d" % number * 500 for number in range(90, 100)}
