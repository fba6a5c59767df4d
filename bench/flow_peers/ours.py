"""oncelog: `flow.run` in one process.

planned  `count` by a step that could set timers, so its order is written down first
timers   the same; a record whose user is 00000000 sets a timer that is due in a day
"""

import logging

from bench.flow_peers import setting
from oncelog.flow import Context, Flow, Topic, json_of, raw

DAY_MS = 86_400_000


def count(seen: int, _: bytes, at: Context[bytes]) -> tuple[int, list[int]]:
    return seen + 1, [seen + 1]


def count_or_wait(seen: int, value: bytes, at: Context[bytes]) -> tuple[int, list[int]]:
    if value[:8] == b"00000000":
        at.timer(at.time_ms + DAY_MS)
        return seen, []
    return seen + 1, [seen + 1]


def nothing(seen: int, _: bytes, at: Context[bytes]) -> tuple[int, list[int]]:
    return seen, []


def user(value: bytes) -> bytes:
    return value[:8]


def flow() -> Flow:
    views = Topic(setting.source, raw, raw, partitions=setting.partitions)
    counts = Topic(setting.out, raw, json_of(int), partitions=setting.out_partitions)
    made = Flow(setting.app, version="1")
    stream = made.read(views, name="views")
    if setting.pipeline == "regroup":
        stream = stream.through(Topic(setting.between, raw, raw, partitions=setting.partitions), key=user)
    if setting.pipeline in ("planned", "timers"):
        step = count_or_wait if setting.pipeline == "timers" else count
        stream.step("count", int, step, on_timer=nothing).write(counts)
    else:
        stream.step("count", int, count).write(counts)
    return made


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    flow().run({"bootstrap.servers": setting.servers})
