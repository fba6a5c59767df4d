"""The demands of a topic on each record of a produced batch: a key where it is compacted, a time near the clock's.

This is asked only about batches for compacted topics and for topics with `message.timestamp.before.max.ms`, and about
those whose header promises a record from the future. That the body is records is known before.
"""

from typing import NamedTuple

from oncelog.log.config import LogConfig
from oncelog.records.header import NO_TIMESTAMP, BatchHeader
from oncelog.records.read import field_end, number

MAX_NAMED = 100
ATTRIBUTES_BYTES = 1
NO_KEY = "a compacted topic takes no record without a key"


class Refused(NamedTuple):
    records: list[tuple[int, str]]  # the first of them: the place in the batch, and why
    times: int  # how many of these for their time


NOTHING_REFUSED = Refused([], 0)


def refused_records(body: bytes, header: BatchHeader, config: LogConfig, wall_ms: int) -> Refused:
    needs_key = config.compacts
    # A record without a time of its own is taken whatever the bounds, as in Kafka.
    base_ms, no_delta = header.base_timestamp, NO_TIMESTAMP - header.base_timestamp
    least_delta = wall_ms - config.behind_max_ms - base_ms
    most_delta = wall_ms + config.ahead_max_ms - base_ms
    found: list[tuple[int, str]] = []
    times = at = 0
    for index in range(header.record_count):
        record_end, at = field_end(body, at, len(body))
        time_delta, at = number(body, at + ATTRIBUTES_BYTES, record_end)
        _, at = number(body, at, record_end)
        key_bytes, _ = number(body, at, record_end)
        if needs_key and key_bytes == -1:
            found.append((index, NO_KEY))
        elif not least_delta <= time_delta <= most_delta and time_delta != no_delta:
            bounds = f"{base_ms + least_delta} to {base_ms + most_delta}"
            found.append((index, f"its timestamp {base_ms + time_delta} is not in {bounds}"))
            times += 1
        if len(found) == MAX_NAMED:
            break
        at = record_end
    return Refused(found, times)
