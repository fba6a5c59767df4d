"""The partition's table as it stands in docs/slots.md: `python -m tests.slots.table_page` writes it there."""

from pathlib import Path
from typing import Final

from oncelog.slots.table import TABLE

PAGE: Final = Path(__file__).parents[2] / "docs" / "slots.md"
BEGIN: Final = "<!-- table -->\n"
END: Final = "<!-- end of table -->\n"


def rendered() -> str:
    lines = ["| state | what happens | what is done (`actions.py`) | next state |", "|---|---|---|---|"]
    lines += [
        f"| {state.name} | {event.name} | `{action.__name__}` | {'' if after is state else after.name} |"
        for state, rows in TABLE.items()
        for event, (action, after) in rows.items()
    ]
    return "\n".join(lines) + "\n"


def on_the_page() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + rendered() + END + after)


if __name__ == "__main__":
    main()
