"""Cleanup job: beside a topic that at-least-once writers fill, one that holds each record once.

    python examples/flows/cleanup_job.py [--servers HOST:PORT] [--spark]

Readers of the clean topic need not know of the other one. Without `id=` it goes by the header `oncelog.source`.
"""

from dataclasses import dataclass

from demo import show

from oncelog.flow import Sent, Topic, cleanup, json_of, text


@dataclass(frozen=True)
class Reading:
    id: str
    degrees: float


messy = Topic("readings.messy", text, json_of(Reading), partitions=2)
pristine = Topic("readings.pristine", text, json_of(Reading), partitions=2)

flow = cleanup(messy, pristine, id=lambda reading: reading.id, name="readings")

outputs = (pristine,)


def records(day: int = 0) -> list[Sent]:
    readings = [(f"sensor {number % 3}", Reading(f"{day}-{number}", 20.5 + number)) for number in range(4)]
    return [messy.sent(sensor, reading) for sensor, reading in (*readings, *readings[2:], *readings)]


if __name__ == "__main__":
    show(flow, records(), *outputs)
