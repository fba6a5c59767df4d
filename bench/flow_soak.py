"""Millions of records through a flow of two stages whose process is killed again and again; then all is counted.

    python -m bench.flow_soak [--server kafka|oncelog] [--records 10000000] [--kills 300] [--seed 1]

The flow regroups views by their user and counts them. Most lives are killed with `kill -9` behind a random part of the
output, some before they have begun. Now and then a life is stopped (SIGSTOP) while another has the flow, and goes on
behind its back; and the server is killed, where it is ours. In the end each count must stand in the output once, each
user's in their order, and the state in the journals must be what the input comes to.
"""

import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

from bench.flow_contestant import OURS, Contestant
from bench.flow_rows import Field
from bench.flow_watch import audit, send, views
from bench.spark_world import World
from oncelog.client import OFFSET_BEGINNING, Consumer, TopicPartition
from oncelog.flow.formats import STATE

KEYS = 100_000
EARLY_SHARE = 0.2
ORPHAN_SHARE = 0.1
SERVER_SHARE = 0.05
QUIET_S = 5.0
SAYS_EVERY = 20
PARTITIONS = 4
PATIENCE_S = 300.0


def disorder(tables: list[pa.Table]) -> int:
    """Counts that do not stand behind the one before, of the same key: a key is in one partition."""
    rows = pa.concat_tables(tables)
    of, seen = (rows[name].cast(pa.string()).cast(pa.int64()).to_numpy() for name in ("key", "value"))
    order = np.argsort(of, kind="stable")
    of, seen = of[order], seen[order]
    return int(np.sum((of[1:] == of[:-1]) & (seen[1:] <= seen[:-1])))


def state(servers: str, journal: str) -> dict[int, int]:
    """As any reader finds it, by the last value of each key."""
    found: dict[int, int] = {}
    prefix = STATE + b"count\0"
    with Consumer({"bootstrap.servers": servers}) as consumer:
        places = [TopicPartition(journal, index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
        consumer.assign(places)
        quiet_s = time.monotonic()
        while time.monotonic() - quiet_s < QUIET_S:
            for message in consumer.consume(10_000, 0.2):
                quiet_s = time.monotonic()
                key, value = message.key(), message.value()
                if key is not None and key.startswith(prefix) and value is not None:
                    found[int(key[len(prefix) :])] = int(value)
    return found


@click.command(help=__doc__, context_settings={"max_content_width": 120})
@click.option("--server", type=click.Choice(["kafka", "oncelog"]), default="oncelog")
@click.option("--records", default=10_000_000)
@click.option("--kills", default=300)
@click.option("--seed", default=1)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the server keeps its data.")
def main(server: str, records: int, kills: int, seed: int, folder: Path | None) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that what was started is ended
    chance = random.Random(seed)
    pages, users = views(records, KEYS, seed)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncelog-soak-", dir=folder)))
        world = stack.enter_context(World(place, server))
        field = Field(world, place, 1.0)
        source = field.create("views", PARTITIONS)
        send(world.servers, source, pages, users)
        work = stack.enter_context(field.work("regroup", source))
        outputs = stack.enter_context(field.outputs(work, keeps=True))
        life, orphan = Contestant(OURS, work, place), Contestant(OURS, work, place)
        stack.callback(life.end)
        stack.callback(orphan.end)
        began_s, happened = time.monotonic(), dict.fromkeys(("killed", "killed early", "stopped", "server"), 0)
        for number in range(kills):
            if not life.is_running:
                life.begin()
            if chance.random() < EARLY_SHARE:
                outputs.until_time(time.monotonic() + chance.uniform(0.1, 2.0))
                happened["killed early"] += 1
            else:
                part = chance.uniform(0.1, 1.5) * records / kills
                outputs.until(min(records, outputs.seen + int(part)), life, PATIENCE_S)
                happened["killed"] += 1
            if orphan.was_started:
                orphan.end()
            if chance.random() < ORPHAN_SHARE:
                life.process.send_signal(signal.SIGSTOP)
                life, orphan = orphan, life
                life.begin()
                outputs.until(min(records, outputs.seen + 1), life, PATIENCE_S)
                orphan.process.send_signal(signal.SIGCONT)
                happened["stopped"] += 1
            else:
                life.end()
            if chance.random() < SERVER_SHARE and world.kill_server():
                happened["server"] += 1
            if number % SAYS_EVERY == SAYS_EVERY - 1:
                took_s = time.monotonic() - began_s
                print(f"  {number + 1} lives, {outputs.seen:,} outputs, {took_s:.0f} s", flush=True)
        orphan.end()
        life.end()
        life.begin()
        outputs.until(records, life, PATIENCE_S)
        outputs.until_quiet(QUIET_S)
        life.leave()
        found, due = audit(outputs.tables, users), np.bincount(users)
        stands = state(world.servers, f"oncelog.flow.{work.app}.{work.between}")
        differs = sum(stands.get(user, 0) != count for user, count in enumerate(due.tolist()))
        words = ", ".join(f"{count} {name}" for name, count in happened.items())
        print(f"{records:,} records, {words}, {time.monotonic() - began_s:.0f} s, seed {seed}, on {server}")
        print(
            f"twice {found.twice}, missing {found.missing}, wrong {found.wrong}, "
            f"out of order {disorder(outputs.tables)}, state differs for {differs} of {len(np.unique(users))} users"
        )
        sys.exit(1 if found.twice or found.missing or found.wrong or differs or disorder(outputs.tables) else 0)


if __name__ == "__main__":
    main()
