"""Checkpoint: a few counters, committed together with the position that they belong to.

    python examples/flows/checkpoint.py [--servers HOST:PORT] [--spark]

Who goes on after a crash has the counters as they were at that position, and counts nothing twice.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Context, Flow, Sent, Topic, json_of, text


@dataclass(frozen=True)
class Seen:
    lines: int = 0
    letters: int = 0


log = Topic("levels.log", text, text)  # its key is the level
seen = Topic("levels.seen", text, json_of(Seen))


def count(so_far: Seen, line: str, at: Context[str]) -> tuple[Seen, list[Seen]]:
    now = Seen(so_far.lines + 1, so_far.letters + len(line))
    return now, [now]


flow = Flow("levels", version="1")
flow.read(log).step("seen", Seen, count).write(seen)

outputs = (seen,)


def records(day: int = 0) -> list[Sent]:
    return [log.sent("INFO", "it begins"), log.sent("ERROR", f"no disk on day {day}"), log.sent("INFO", "it ends")]


if __name__ == "__main__":
    show(flow, records(), *outputs)
