"""The table of a cell: every row is reached, and the page shows it as it is."""

from collections.abc import Mapping
from unittest.mock import patch

from oncelog.flow import table
from oncelog.flow.states import Event, State
from oncelog.flow.table import TABLE, Row
from tests.flow import test_cell, test_hand_over
from tests.flow.cluster import Rules
from tests.flow.world import World
from tests.slots.table_page import FLOW_PAGE, on_the_page, rendered

SEEDS = 60


class Watched(dict[Event, Row]):
    def __init__(self, state: State, rows: Mapping[Event, Row], seen: set[tuple[State, Event]]) -> None:
        super().__init__(rows)
        self._state, self._seen = state, seen

    def __getitem__(self, event: Event) -> Row:
        self._seen.add((self._state, event))
        return super().__getitem__(event)


def test_every_row_is_reached() -> None:
    seen: set[tuple[State, Event]] = set()
    watched = {state: Watched(state, rows, seen) for state, rows in TABLE.items()}
    with patch.object(table, "TABLE", watched):
        for seed in range(SEEDS):
            World(seed, Rules(has_plan=seed % 2 == 0)).run()
        for each in (
            test_cell.test_without_a_goodbye_other_code_sends_nothing_before_the_deadline_of_the_one_before,
            test_cell.test_what_is_no_record_of_a_journal_is_refused_behind_the_take_over_too,
            test_cell.test_what_was_compacted_away_since_the_first_read_lets_all_be_read_anew,
            test_cell.test_a_newer_tenancy_is_left_alone,
            test_hand_over.test_one_that_yields_takes_over_as_soon_as_goodbye_is_said,
            test_cell.test_a_journal_of_another_cell_is_refused_by_name,
            test_cell.test_a_record_whose_changes_do_not_fit_a_commit_is_refused,
            test_cell.test_what_a_broker_refuses_for_good_stops_a_cell,
        ):
            each()
    rows = {(state, event) for state, events in TABLE.items() for event in events}
    assert not sorted(rows - seen)


def test_the_page_shows_the_table_as_it_is() -> None:
    assert on_the_page(page=FLOW_PAGE) == rendered(TABLE)
