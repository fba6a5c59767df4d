"""The table in docs/compatibility.md: a row for each peer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.peers.matrix.clients import CLIENTS
from tests.peers.matrix.frameworks import FRAMEWORKS
from tests.peers.matrix.steps import Peer

PAGE: Final = Path(__file__).parents[3] / "docs" / "compatibility.md"
BEGIN: Final = "<!-- the matrix: written by python -m tests.peers.matrix -->"
END: Final = "<!-- end of the matrix -->"
HEAD: Final = ("client", "version", "what was done", "oncelog", "Apache Kafka 4.3")
PEERS: Final = {peer.name: peer for peer in (*CLIENTS, *FRAMEWORKS)}
DONE: Final = "done"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    version: str
    done: str
    oncelog: str = ""
    kafka: str = ""

    def text(self) -> str:
        cells = (self.name, self.version, self.done, self.oncelog, self.kafka)
        return "| " + " | ".join(cells) + " |"


def row_of(peer: Peer, oncelog: str = "", kafka: str = "") -> Row:
    return Row(peer.name, peer.version(), peer.done, oncelog, kafka)


def rows() -> dict[str, Row]:
    """As they stand on the page."""
    table = PAGE.read_text().split(BEGIN, 1)[1].split(END, 1)[0]
    lines = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    return {cells[0]: Row(*cells) for cells in lines}


def write(found: dict[str, Row]) -> None:
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += [found[name].text() for name in PEERS if name in found]
    before, rest = PAGE.read_text().split(BEGIN, 1)
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.split(END, 1)[1]}")
