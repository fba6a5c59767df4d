"""Repartition: views by page become views by visitor, and are counted there.

    python examples/flows/repartition.py [--servers HOST:PORT] [--spark]

Many cells write to one partition, each in slots of its own that are filled once. So the topic between holds each view
once, for any other reader as well; headers say where a view came from.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Context, Flow, Sent, Topic, json_of, text


@dataclass(frozen=True)
class View:
    visitor: str


views = Topic("visits.views", text, json_of(View), partitions=2)  # by page
by_visitor = Topic("visits.by-visitor", text, json_of(View), partitions=3)
visits = Topic("visits.counts", text, json_of(int))


def count(so_far: int, view: View, at: Context[str]) -> tuple[int, list[int]]:
    return so_far + 1, [so_far + 1]


flow = Flow("visits", version="1")
flow.read(views).through(by_visitor, key=lambda view: view.visitor).step("visits", int, count).write(visits)

outputs = (visits,)


def records(day: int = 0) -> list[Sent]:
    seen = [("/", "anna"), ("/news", "anna"), ("/", "bert"), ("/shop", "anna")]
    return [views.sent(page, View(visitor)) for page, visitor in seen]


if __name__ == "__main__":
    show(flow, records(), *outputs)
