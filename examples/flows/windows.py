"""Windows of event time: the warmest reading of each minute, written once; what comes too late has a topic of its own.

    python examples/flows/windows.py [--servers HOST:PORT] [--spark]

A reading may be `wait_ms` older than the newest one. A window is written when its end is further back than that; at the
end of the input the present time counts, so the last windows need no traffic.
"""

from demo import show

from oncelog.flow import Flow, Sent, Topic, Window, json_of, text

MINUTE_MS = 60_000

readings = Topic("weather.readings", text, json_of(float))
warmest = Topic("weather.warmest", text, json_of(Window[float]))
late = Topic("weather.late", text, json_of(float))

flow = Flow("weather", version="1")
came = flow.read(readings, wait_ms=10_000)
came.window("by-minute", float, max, size_ms=MINUTE_MS, late=late).write(warmest)

outputs = (warmest, late)


def records(day: int = 0) -> list[Sent]:
    begin_ms = 1_700_000_040_000 + day * 86_400_000  # a full minute
    degrees_at = [(0, 20.5), (50, 21.0), (65, 22.0), (55, 21.5), (120, 20.0), (20, 30.0)]
    return [readings.sent("roof", degrees + 100 * day, begin_ms + second * 1_000) for second, degrees in degrees_at]


if __name__ == "__main__":
    show(flow, records(), *outputs)
