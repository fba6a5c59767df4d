"""The line that tells how far a copy is."""

from oncelog.spark.copying.showing import words


def test_the_line_says_how_much_of_what_there_is() -> None:
    assert words(2000, 8000, 2.0) == "copied 2,000 of 8,000 records (25%), 1,000 records/s"
    assert words(2000, None, 2.0) == "copied 2,000 records, 1,000 records/s"
    assert words(0, 0, 0.0) == "copied 0 of 0 records (100%), "


def test_what_others_write_to_the_destination_is_never_more_than_all() -> None:
    assert words(9000, 8000, 2.0) == "copied 8,000 of 8,000 records (100%), 4,000 records/s"
