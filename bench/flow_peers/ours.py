"""oncelog: `flow.run` in one process.

planned  `count` by a step that could set timers, so its order is written down first
timers   the same; a record whose user is 00000000 sets a timer that is due in a day
files    the source as Parquet, to its end
regroup_timed  a timer for each user and five minutes, too, which tells how many there were, as a number below zero
"""

import logging
from dataclasses import dataclass

from bench.flow_peers import setting
from bench.flow_peers.periods import PERIOD_MS
from oncelog.flow import Context, Flow, Topic, json_of, raw

DAY_MS = 86_400_000


def count(seen: int, _: bytes, at: Context[bytes]) -> tuple[int, list[int]]:
    return seen + 1, [seen + 1]


def count_or_wait(seen: int, value: bytes, at: Context[bytes]) -> tuple[int, list[int]]:
    if value[:8] == b"00000000":
        at.timer(at.time_ms + DAY_MS)
        return seen, [seen]
    return seen + 1, [seen + 1]


def nothing(seen: int, _: bytes, at: Context[bytes]) -> tuple[int, list[int]]:
    return seen, []


@dataclass(frozen=True)
class Seen:
    count: int = 0
    waiting: tuple[tuple[int, int], ...] = ()  # how many for each timer


def count_by_period(seen: Seen, _: bytes, at: Context[bytes]) -> tuple[Seen, list[int]]:
    waiting, due_ms = dict(seen.waiting), (at.time_ms // PERIOD_MS + 1) * PERIOD_MS
    waiting[due_ms] = waiting.get(due_ms, 0) + 1
    at.timer(due_ms)
    return Seen(seen.count + 1, tuple(waiting.items())), [seen.count + 1]


def tell_period(seen: Seen, _: bytes, at: Context[bytes]) -> tuple[Seen, list[int]]:
    waiting = dict(seen.waiting)
    told = waiting.pop(at.time_ms, 0)
    return Seen(seen.count, tuple(waiting.items())), [-told]


def user(value: bytes) -> bytes:
    return value[:8]


def flow() -> Flow:
    views = Topic(setting.source, raw, raw, partitions=setting.partitions)
    counts = Topic(setting.out, raw, json_of(int), partitions=setting.out_partitions)
    made = Flow(setting.app, version="1")
    stream = made.read(views, name="views")
    if setting.pipeline == "files":
        stream.files(setting.files)
        return made
    if setting.pipeline.startswith("regroup"):
        stream = stream.through(Topic(setting.between, raw, raw, partitions=setting.partitions), key=user)
    if setting.pipeline == "regroup_timed":
        stream.step("count", Seen, count_by_period, on_timer=tell_period).write(counts)
    elif setting.pipeline in ("planned", "timers"):
        step = count_or_wait if setting.pipeline == "timers" else count
        stream.step("count", int, step, on_timer=nothing).write(counts)
    else:
        stream.step("count", int, count).write(counts)
    return made


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    flow().run({"bootstrap.servers": setting.servers}, until="end" if setting.pipeline == "files" else None)
