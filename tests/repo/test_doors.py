"""docs/doors.md says what the rooms offer each other as the code has it."""

from tests.repo import doors
from tests.repo.tree import read


def test_the_page_of_doors_is_what_the_code_has() -> None:
    assert read(doors.PAGE) == doors.page(), "write it anew: python -m tests.repo.doors"


def test_a_door_names_what_another_room_imports_with_its_signature() -> None:
    page = doors.page()
    assert "- `class Identity(pid: int, generation: int, expires_at_ms: int)`" in page
    assert "`oncelog.slots.actions`" not in page, "only its own room imports it"
