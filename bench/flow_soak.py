"""Millions of records through a flow of two stages whose process is killed again and again; then all is counted.

    python -m bench.flow_soak [--server kafka|oncelog] [--records 10000000] [--kills 300] [--minutes 60]

The flow regroups views by their user and counts them, and a timer for each user and five minutes tells how many came in
these. Most lives are killed with `kill -9` behind a random part of the
output, some before they have begun. Now and then a life is stopped (SIGSTOP) while another has the flow, and goes on
behind its back; and the server is killed, where it is ours. In the end each count must stand in the output once, each
user's in their order, each timer must have fired once and told what is right, and the state in the journals must be
what the input comes to. Where that is not so, the folder with the server's data and all that was said is kept.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.flow_contestant import OURS, Contestant
from bench.flow_peers.periods import PERIOD_MS
from bench.flow_rows import Field
from bench.flow_watch import Numbers, audit, send, views
from bench.spark_world import World
from oncelog.client import OFFSET_BEGINNING, Consumer, TopicPartition
from oncelog.flow.formats import STATE

KEYS = 100_000
EARLY_SHARE = 0.2
ORPHAN_SHARE = 0.1
SERVER_SHARE = 0.05
QUIET_S = 5.0
DRAINED_S = 0.5
SAYS_EVERY = 20
HOUR_MS = 3_600_000
PARTITIONS = 4
PATIENCE_S = 300.0
END_PATIENCE_S = 1200.0  # with all that is left


def times_of(records: int) -> Numbers:
    """An hour of them, which is over."""
    began_ms = int(time.time() * 1000) // HOUR_MS * HOUR_MS - 2 * HOUR_MS
    found: Numbers = began_ms + np.arange(records) * HOUR_MS // records
    return found


def parted(tables: list[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """The counts, and what the timers told, which is not above zero."""
    rows = pa.concat_tables(tables)
    is_count = pc.not_equal(pc.binary_slice(rows["value"], 0, 1), b"-")
    is_count = pc.and_(is_count, pc.not_equal(rows["value"], b"0"))
    return rows.filter(is_count), rows.filter(pc.invert(is_count))


def numbered(rows: pa.Table) -> tuple[Numbers, Numbers]:
    """Users and what stands for them, user by user: a user is in one partition."""
    of, said = (rows[name].cast(pa.string()).cast(pa.int64()).to_numpy() for name in ("key", "value"))
    order = np.argsort(of, kind="stable")
    return of[order], said[order]


def disorder(counts: pa.Table) -> int:
    """Counts that do not stand behind the one before, of the same user."""
    of, seen = numbered(counts)
    return int(np.sum((of[1:] == of[:-1]) & (seen[1:] <= seen[:-1])))


def timers_of(users: Numbers, times_ms: Numbers) -> tuple[Numbers, Numbers]:
    """Of each, user by user in their order: whose it is, and how many records fell due."""
    periods = HOUR_MS // PERIOD_MS
    each, counts = np.unique(users * periods + times_ms % HOUR_MS // PERIOD_MS, return_counts=True)
    return each // periods, counts


def timers_wrong(told: pa.Table, whose: Numbers, counts: Numbers) -> int:
    """Users whose timers did not tell, each once and in their order, what they had to."""
    of, said = numbered(told)
    if np.array_equal(of, whose) and np.array_equal(-said, counts):
        return 0
    return sum(not np.array_equal(-said[of == user], counts[whose == user]) for user in np.union1d(of, whose).tolist())


def state(servers: str, journal: str) -> dict[int, tuple[list[int], Any]]:
    """Of each user, as any reader finds it, by the last value of each key: its timers, and its state."""
    found: dict[int, tuple[list[int], Any]] = {}
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
                    timers, _, stands = value.partition(b"\n")
                    found[int(key[len(prefix) :])] = json.loads(timers), json.loads(stands)
    return found


@contextmanager
def kept_where_it_fails(place: Path) -> Iterator[None]:
    """Before its topics are deleted."""
    try:
        yield
    except Exception:
        kept = place.with_name(f"{place.name}-kept")
        print(f"kept in {kept}")
        shutil.copytree(place, kept, copy_function=os.link)
        raise


@click.command(help=__doc__, context_settings={"max_content_width": 120})
@click.option("--server", type=click.Choice(["kafka", "oncelog"]), default="oncelog")
@click.option("--records", default=10_000_000)
@click.option("--kills", default=300)
@click.option("--minutes", default=60.0, help="After which nothing is killed any more.")
@click.option("--seed", default=1)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the server keeps its data.")
def main(server: str, records: int, kills: int, minutes: float, seed: int, folder: Path | None) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that what was started is ended
    chance = random.Random(seed)
    pages, users = views(records, KEYS, seed)
    times_ms = times_of(records)
    whose, fell_due = timers_of(users, times_ms)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncelog-soak-", dir=folder)))
        world = stack.enter_context(World(place, server))
        field = Field(world, place, 1.0)
        source = field.create("views", PARTITIONS)
        send(world.servers, source, pages, users, times_ms)
        work = stack.enter_context(field.work("regroup_timed", source))
        stack.enter_context(kept_where_it_fails(place))
        outputs = stack.enter_context(field.outputs(work, keeps=True))
        life, orphan = Contestant(OURS, work, place), Contestant(OURS, work, place)
        stack.callback(life.end)
        stack.callback(orphan.end)
        began_s, happened = time.monotonic(), dict.fromkeys(("killed", "killed early", "stopped", "server"), 0)
        for number in range(kills):
            if time.monotonic() - began_s > minutes * 60:
                break
            if not life.is_running:
                life.begin()
                outputs.until_quiet(DRAINED_S)  # what comes from now on is its own
            is_early = chance.random() < EARLY_SHARE
            if is_early:
                outputs.until_time(time.monotonic() + chance.uniform(0.1, 2.0))
                happened["killed early"] += 1
            else:
                part = chance.uniform(0.1, 1.5) * records / kills
                outputs.until(min(records, outputs.seen + int(part)), life, PATIENCE_S)
                happened["killed"] += 1
            if orphan.was_started:
                orphan.end()
            if chance.random() < ORPHAN_SHARE and not is_early:  # one that has not begun would begin as the later one
                life.process.send_signal(signal.SIGSTOP)
                outputs.until_quiet(DRAINED_S)
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
        outputs.until(records + len(whose), life, END_PATIENCE_S)
        outputs.until_quiet(QUIET_S)
        life.leave()
        counts, told = parted(outputs.tables)
        found, due = audit([counts], users), np.bincount(users)
        stands = state(world.servers, f"oncelog.flow.{work.app}.{work.between}")
        wanted: dict[int, tuple[list[int], Any]] = {
            user: ([], {"count": count, "waiting": []}) for user, count in enumerate(due.tolist()) if count
        }
        differs = sum(stands.get(user) != wanted.get(user) for user in {*stands, *wanted})
        unordered, mistold = disorder(counts), timers_wrong(told, whose, fell_due)
        words = ", ".join(f"{count} {name}" for name, count in happened.items())
        print(f"{records:,} records, {words}, {time.monotonic() - began_s:.0f} s, seed {seed}, on {server}")
        print(
            f"twice {found.twice}, missing {found.missing}, wrong {found.wrong}, out of order {unordered}; "
            f"{len(told):,} timers of {len(whose):,} told, wrong for {mistold} users; "
            f"state differs for {differs} of {len(wanted)} users"
        )
        if found.twice or found.missing or found.wrong or unordered or mistold or differs:
            raise click.ClickException("what came out is not what went in")


if __name__ == "__main__":
    main()
