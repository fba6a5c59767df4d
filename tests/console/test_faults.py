"""Faults as they happen: kept in memory, or in a file that outlives the server that shows them."""

from pathlib import Path

from oncelog.console.faults import TAIL_BYTES, Fault, FaultFile, FaultList, faults_view
from oncelog.console.limits import MOST_FAULTS


def fault(number: int) -> Fault:
    return Fault(at_ms=number, kind="server", words=f"killed {number}")


def test_a_list_keeps_the_newest() -> None:
    faults = FaultList()
    assert faults.newest(3) == ([], False)
    for number in range(MOST_FAULTS + 5):
        faults.add(fault(number))
    newest, is_cut = faults.newest(3)
    assert [each.at_ms for each in newest] == [MOST_FAULTS + 4, MOST_FAULTS + 3, MOST_FAULTS + 2]
    assert is_cut


def test_a_file_is_read_on_by_the_next_server(tmp_path: Path) -> None:
    path = tmp_path / "faults"
    assert FaultFile(path).newest(3) == ([], False)
    FaultFile(path).add(fault(1))
    FaultFile(path).add(fault(2))
    assert FaultFile(path).newest(3) == ([fault(2), fault(1)], False)
    assert FaultFile(path).newest(1) == ([fault(2)], True)


def test_of_a_long_file_the_end_is_read(tmp_path: Path) -> None:
    faults = FaultFile(tmp_path / "faults")
    long = Fault(at_ms=1, kind="server", words="x" * 500)
    for _ in range(TAIL_BYTES // 400):
        faults.add(long)
    faults.add(fault(2))
    newest, is_cut = faults.newest(10_000)
    assert newest[0] == fault(2) and newest[-1] == long
    assert is_cut and len(newest) < TAIL_BYTES // 500 + 2


def test_half_a_line_and_what_is_no_fault_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "faults"
    FaultFile(path).add(fault(1))
    with open(path, "a") as file:
        file.write('[]\nnull\n{"at_ms": "x", "kind": 1, "words": 2}\n{"at_ms": 3\n\n{"at_ms": 4, "kind": "half')
    assert FaultFile(path).newest(10) == ([fault(1)], False)


def test_what_the_page_shows_is_made_visible() -> None:
    faults = FaultList()
    faults.add(Fault(at_ms=5, kind="\x1b", words="a\u202eb"))
    assert faults_view(faults) == {
        "faults": [{"at_ms": 5, "kind": "\\x1b", "words": "a\\u202eb"}],
        "is_cut": False,
    }
