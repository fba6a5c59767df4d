"""Tables and YAML by themselves."""

import pytest

from oncelog.cli.parts.output import duration, table, yaml
from oncelog.cli.parts.records import unescape


def test_numbers_stand_to_the_right_and_a_dash_for_what_is_not_known() -> None:
    rows: list[dict[str, object]] = [{"name": "a", "size": 5, "of": [1, 2]}, {"name": "long", "size": None, "of": []}]
    assert table(rows, ["name", "size", "of"]) == "NAME  SIZE  OF\na        5  1,2\nlong     -  \n".replace(
        "  \n", "\n"
    )


def test_headings_stand_alone_where_there_is_nothing() -> None:
    assert table([], ["a", "b_c"]) == "A  B C\n"


def test_a_line_break_in_a_value_breaks_no_table() -> None:
    assert table([{"a": "x\ny"}], ["a"]) == "A\nx y\n"
    assert table([{"a": ["x\ny", "z"]}], ["a"]) == "A\nx\\x0ay,z\n"


def test_what_others_are_called_tells_the_terminal_nothing() -> None:
    name = "\x1b]0;mine\x07\x1b[2J\u202etext\x9b1m"
    assert table([{"a": name}], ["a"]) == "A\n\\x1b]0;mine\\x07\\x1b[2J\\u202etext\\x9b1m\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "[]\n"),
        ({}, "{}\n"),
        ([1, None, True], "- 1\n- null\n- true\n"),
        ({"a": [], "b": {"c": 1.5}}, "a: []\nb:\n  c: 1.5\n"),
        ([{"a": 1, "b": [{"c": 2}]}], "- a: 1\n  b:\n    - c: 2\n"),
        ([[1, 2], [3]], "- - 1\n  - 2\n- - 3\n"),
        ("plain.text-1", "plain.text-1\n"),
        ("no", '"no"\n'),
        ("1", '"1"\n'),
        ("", '""\n'),
        ("a: b", '"a: b"\n'),
        ("- x", '"- x"\n'),
        ('é"\\\n', '"é\\"\\\\\\n"\n'),
        ("\x00\x7f\x85\u2028\U000e0001", '"\\x00\\x7f\\x85\\u2028\\U000e0001"\n'),
    ],
)
def test_yaml_says_what_is_meant(value: object, text: str) -> None:
    assert yaml(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0s"),
        (9_949, "9.9s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (3_725_000, "1h 2m"),
        (86_400_000, "1d"),
        (90_000_000, "1d 1h"),
        (86_460_000, "1d"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(ms: int, text: str) -> None:
    assert duration(ms) == text
    assert duration(None) is None


def test_escapes_are_those_of_c() -> None:
    assert unescape(r"a\n\t\r\x41\x4\101\0\\q\q") == b"a\n\t\rA\x04A\0\\qq"
    assert unescape("é\udcff") == b"\xc3\xa9\xff"
