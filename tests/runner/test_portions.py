"""How many records a cell is given at once."""

from oncelog.runner.portions import FIRST_RECORDS, LONG_TURN_S, MOST_RECORDS, Portions


def given_until_it_settles(portions: Portions, seconds_a_record: float, turns: int) -> list[int]:
    found = []
    for _ in range(turns):
        found.append(portions.records)
        portions.took(portions.records * seconds_a_record, portions.records)
    return found


def test_a_slow_function_gets_what_takes_a_short_turn() -> None:
    settled = given_until_it_settles(Portions(), 0.01, 50)[2:]
    assert all(records * 0.01 <= LONG_TURN_S for records in settled)
    assert min(settled) * 0.01 >= 0.05
    assert given_until_it_settles(Portions(), 60.0, 5)[1:] == [1, 1, 1, 1]


def test_what_is_given_first_is_little_and_soon_much() -> None:
    assert given_until_it_settles(Portions(), 5e-6, 8) == [FIRST_RECORDS << turn for turn in range(7)] + [MOST_RECORDS]


def test_a_process_that_stood_still_is_soon_given_as_much_as_before() -> None:
    portions = Portions()
    for _ in range(5):
        portions.took(3600.0, portions.records)
    assert portions.records == 1
    assert given_until_it_settles(portions, 5e-6, 15)[-1] == MOST_RECORDS


def test_a_turn_without_records_says_nothing_of_them() -> None:
    portions = Portions()
    portions.took(30.0, 0)
    assert portions.records == FIRST_RECORDS
    portions.took(1.0, 1_000)
    portions.took(0.001, 0)
    portions.took(0.001, 49)
    assert portions.records == 100
    portions.took(0.001, 50)
    assert portions.records == 200
