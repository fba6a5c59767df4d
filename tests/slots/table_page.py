"""The tables of slots as they stand in docs/slots.md: `python -m tests.slots.table_page` writes them there."""

from pathlib import Path
from typing import Final

from oncelog.slots.resuming import TABLE as RESUME
from oncelog.slots.table import TABLE

PAGE: Final = Path(__file__).parents[2] / "docs" / "slots.md"
BEGIN: Final = "<!-- {}table -->\n"
END: Final = "<!-- end of {}table -->\n"


def rendered() -> str:
    lines = ["| state | what happens | what is done (`actions.py`) | next state |", "|---|---|---|---|"]
    lines += [
        f"| {state.name} | {event.name} | `{action.__name__}` | {'' if after is state else after.name} |"
        for state, rows in TABLE.items()
        for event, (action, after) in rows.items()
    ]
    return "\n".join(lines) + "\n"


def rendered_resume() -> str:
    lines = ["| asked | the answer says | what follows |", "|---|---|---|"]
    lines += [
        f"| {asked.name} | {says.name}: {says.value} | {follows.name}: {follows.value} |"
        for asked, rows in RESUME.items()
        for says, follows in rows.items()
    ]
    return "\n".join(lines) + "\n"


def on_the_page(which: str = "") -> str:
    return PAGE.read_text().partition(BEGIN.format(which))[2].partition(END.format(which))[0]


def main() -> None:
    for which, table in (("", rendered()), ("resume ", rendered_resume())):
        begin, end = BEGIN.format(which), END.format(which)
        before, _, rest = PAGE.read_text().partition(begin)
        PAGE.write_text(before + begin + table + end + rest.partition(end)[2])


if __name__ == "__main__":
    main()
