"""Exclusive producer: a topic is copied, partition by partition, and each record stands in the copy once.

    python examples/flows/exclusive_producer.py [--servers HOST:PORT] [--spark]

No state is kept but the position. What was copied behind the last commit is found in the copy itself.
"""

from demo import show

from oncelog.flow import Flow, Sent, Topic, text

views = Topic("copy.views", text, text, partitions=2)
copied = Topic("copy.copied", text, text, partitions=2)

flow = Flow("copy", version="1")
flow.read(views).write(copied)

outputs = (copied,)


def records(day: int = 0) -> list[Sent]:
    return [views.sent(f"/page/{number}", f"seen on day {day}") for number in range(4)]


if __name__ == "__main__":
    show(flow, records(), *outputs)
