"""Deduplication by source offsets: a copier that began again where it had been, and one number kept for each source.

    python examples/flows/dedup_by_offset.py [--servers HOST:PORT] [--spark]

Here lines of files are copied into a topic, with file and number in the record. What a flow's `through` writes has its
source in a header; then `dedup_offsets` needs no function.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Flow, Sent, Topic, json_of, text


@dataclass(frozen=True)
class Line:
    file: str
    number: int
    text: str


copied = Topic("lines.copied", text, json_of(Line), partitions=2)
once = Topic("lines.once", text, json_of(Line), partitions=2)

flow = Flow("lines", version="1")
flow.read(copied).dedup_offsets("files", lambda line, at: (line.file, line.number)).write(once)

outputs = (once,)


def records(day: int = 0) -> list[Sent]:
    file = f"day-{day}.log"
    numbers = [1, 2, 3, 2, 3, 4]  # killed behind line 3, and begun again at line 2
    return [copied.sent(file, Line(file, number, f"line {number}")) for number in numbers]


if __name__ == "__main__":
    show(flow, records(), *outputs)
