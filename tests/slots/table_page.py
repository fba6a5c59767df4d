"""The tables of slots and flows as they stand on their pages: `python -m tests.slots.table_page` writes them there."""

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from oncelog.flow.table import TABLE as CELL
from oncelog.slots.questions import Ask, End, Says
from oncelog.slots.resuming import TABLE as RESUME
from oncelog.slots.standing import TABLE as LOOK_UP
from oncelog.slots.table import TABLE

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "slots.md"
FLOW_PAGE: Final = DOCS / "flow.md"
BEGIN: Final = "<!-- {}table -->\n"
END: Final = "<!-- end of {}table -->\n"


Rows = Mapping[Any, tuple[Callable[..., Any], Enum]]


def rendered(table: Mapping[Any, Rows] = TABLE) -> str:
    lines = ["| state | what happens | what is done (`actions.py`) | next state |", "|---|---|---|---|"]
    lines += [
        f"| {state.name} | {event.name} | `{action.__name__}` | {'' if after is state else after.name} |"
        for state, rows in table.items()
        for event, (action, after) in rows.items()
    ]
    return "\n".join(lines) + "\n"


def rendered_questions(table: Mapping[Ask, Mapping[Says, Ask | End]]) -> str:
    lines = ["| asked | the answer says | what follows |", "|---|---|---|"]
    lines += [
        f"| {asked.name} | {says.name}: {says.value} | {follows.name}: {follows.value} |"
        for asked, rows in table.items()
        for says, follows in rows.items()
    ]
    return "\n".join(lines) + "\n"


def on_the_page(which: str = "", page: Path = PAGE) -> str:
    return page.read_text().partition(BEGIN.format(which))[2].partition(END.format(which))[0]


def main() -> None:
    for page, which, table in (
        (PAGE, "", rendered()),
        (PAGE, "resume ", rendered_questions(RESUME)),
        (PAGE, "look-up ", rendered_questions(LOOK_UP)),
        (FLOW_PAGE, "", rendered(CELL)),
    ):
        begin, end = BEGIN.format(which), END.format(which)
        before, _, rest = page.read_text().partition(begin)
        page.write_text(before + begin + table + end + rest.partition(end)[2])


if __name__ == "__main__":
    main()
