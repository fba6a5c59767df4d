"""The table of docs/rights.md, from the one in the code. `python -m tests.server.rights_page` writes it anew."""

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import apis
from oncelog.server.api_rights import NEEDS, Need
from tests.repo.tree import ROOT

PAGE = ROOT / "docs/rights.md"
BEGIN, END = "<!-- begin: what requests ask for -->", "<!-- end: what requests ask for -->"


def word(name: str) -> str:
    """`DESCRIBE_CONFIGS` is DescribeConfigs."""
    return "".join(part.capitalize() for part in name.split("_"))


def table() -> str:
    lines = ["| request | operation | on | |", "|---|---|---|---|"]
    for api in sorted(apis().values(), key=lambda api: api.key):
        name = word(api.name) if api.key < 1000 else f"{api.name} (our own)"
        needs: tuple[Need | None, ...] = NEEDS[api.name] or (None,)
        for number, need in enumerate(needs):
            lines.append(_line(name if number == 0 else "", need))
    return "\n".join(lines)


def _line(name: str, need: Need | None) -> str:
    if need is None:
        return f"| {name} | none | | |"
    on = {
        Resource.TOPIC: "topic",
        Resource.GROUP: "group",
        Resource.CLUSTER: "cluster",
        Resource.TRANSACTIONAL_ID: "transactional id",
    }[need.resource]
    return f"| {name} | {word(Operation(need.operation).name)} | {on} | {need.note} |"


def page_with(text: str) -> str:
    before, rest = PAGE.read_text().split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page_with(table()))
