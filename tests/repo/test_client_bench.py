"""The client's table: every line stands on rows that are measured, and the page has a place for it."""

from bench import client
from bench.table import PAGE


def test_every_line_compares_rows_that_are_there() -> None:
    named = {name for line in client.LINES for name in (line.ours, line.theirs) if name}
    assert named == client.ROWS.keys()


def test_the_page_has_a_place_for_the_table() -> None:
    page = PAGE.read_text()
    assert page.count(client.BEGIN) == page.count(client.END) == 1
    assert page.index(client.BEGIN) < page.index(client.END)


def test_a_ratio_is_the_median_of_those_within_a_round() -> None:
    line = client.Line("sent", "ours", "theirs", at_least=1)
    row = client.row_of(line, {"ours": [2.0, 3.0, 8.0], "theirs": [1.0, 3.0, 16.0]})
    assert row == "| sent | 3 | 3 | theirs | 1.00 | ≥ 1x | yes |"
    assert client.row_of(line, {"ours": [1.0]}) is None
