"""Scenes of a group's life as text files: an order, a line of dashes, what happened.

The orders are those of `Stage`. To write the outcomes anew after a change, and then to read what changed:

    REWRITE_TRANSCRIPTS=1 pytest tests/server/groups/test_transcripts.py
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.server.groups.messages import GroupLimits
from tests.server.groups.stage import Stage

FOLDER = Path(__file__).parent / "transcripts"
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000}
QUIET = "(nothing)"


def milliseconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNITS_MS[unit]


def protocols(text: str) -> list[tuple[str, bytes]]:
    """range,roundrobin or range:metadata."""
    return [(name, metadata.encode()) for name, _, metadata in (part.partition(":") for part in text.split(","))]


def join(stage: Stage, names: list[str], given: dict[str, str]) -> None:
    for name in names:
        stage.join(
            name,
            protocols=protocols(given.get("protocols", "range")),
            protocol_type=given.get("type", "consumer"),
            session_ms=milliseconds(given.get("session", "10s")),
            rebalance_ms=milliseconds(given.get("rebalance", "60s")),
            instance_id=given.get("instance"),
            version=int(given.get("version", "4")),
        )


def disk(stage: Stage, state: str) -> None:
    stage.disk = state
    if state == "ok":
        stage.settle_disk()


ORDERS: dict[str, Callable[[Stage, list[str], dict[str, str]], object]] = {
    "join": join,
    "sync": lambda stage, names, given: stage.sync(names[0], given),
    "heartbeat": lambda stage, names, given: stage.heartbeat(*names),
    "commit": lambda stage, names, given: stage.commit(names[0]),
    "leave": lambda stage, names, given: stage.leave(*names),
    "remove-instance": lambda stage, names, given: stage.remove_instances(*names),
    "hang-up": lambda stage, names, given: stage.hang_up(names[0]),
    "restart": lambda stage, names, given: stage.restart_client(names[0]),
    "wait": lambda stage, names, given: stage.wait(milliseconds(names[0])),
    "disk": lambda stage, names, given: disk(stage, names[0]),
    "show": lambda stage, names, given: stage.show(),
}


def play(stage: Stage, order: str) -> Stage:
    verb, *words = order.split()
    given = dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word]
    if verb == "limits":
        return Stage(
            GroupLimits(
                **{key: milliseconds(each) if key.endswith("_ms") else int(each) for key, each in given.items()}
            )
        )
    ORDERS[verb](stage, names, given)
    return stage


def scenes(text: str) -> Iterator[tuple[str, list[str]]]:
    """Comment lines stand as orders without an outcome."""
    for block in re.split(r"\n\n+", text.strip()):
        comments = [line for line in block.splitlines() if line.startswith("#")]
        rest = [line for line in block.splitlines() if not line.startswith("#")]
        orders = rest[: rest.index("----")] if "----" in rest else rest
        yield "\n".join(comments), orders


def performed(text: str) -> str:
    stage = Stage()
    blocks = []
    for comments, orders in scenes(text):
        lines = [comments] if comments else []
        for order in orders:
            stage = play(stage, order)
        if orders:
            lines += [*orders, "----", *(stage.told() or [QUIET])]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_scene_plays_as_written(path: Path) -> None:
    written = path.read_text()
    found = performed(written)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(found)
    assert found == written or os.environ.get("REWRITE_TRANSCRIPTS")
