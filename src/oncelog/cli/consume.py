"""`oncelog consume`: records to stdout, in kcat's letters and formats."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from oncelog.cli.parts.endings import ended_by_sigterm, speaks_to_brokers
from oncelog.cli.parts.options import CONSUMER, Connecting, connecting, partitions_option

if TYPE_CHECKING:
    from oncelog.cli.parts.cluster import Cluster
    from oncelog.cli.parts.consume_loop import Limits
    from oncelog.cli.parts.records import Form, Renderer
    from oncelog.cli.parts.start_offsets import Range
    from oncelog.slots import Place


@dataclass(frozen=True, slots=True)
class What:
    """The options that say which records are read."""

    topics: tuple[str, ...]
    indexes: tuple[int, ...]
    group: str | None
    range: "Range"


@dataclass(frozen=True, slots=True)
class Shape:
    """The options that say how records are printed."""

    format: str | None
    is_json: bool
    delimiter: str
    key_delimiter: str | None
    prints_null: bool


@click.command(name="consume")
@connecting
@click.option("-t", "topics", metavar="TOPIC", multiple=True, help="A topic to read; repeatable.")
@partitions_option
@click.option("-G", "group", metavar="GROUP", help="Share the topics with the other members of this group.")
@click.option(
    "-o",
    "offsets",
    metavar="WHERE",
    multiple=True,
    help="beginning (if not given), end, stored, an offset, -N from the end, s@MS; and e@MS, where to stop.",
)
@click.option("-c", "count", metavar="N", type=click.IntRange(min=1), help="End after N records.")
@click.option("-e", "ends", is_flag=True, help="End when the end of every partition was reached.")
@click.option("-f", "format_", metavar="FORMAT", help="%t %p %o %k %s %K %S %R %T %h %%, and \\n \\t \\r \\xHH.")
@click.option("-J", "is_json", is_flag=True, help="kcat's JSON envelope, which `produce -J` takes.")
@click.option("-D", "delimiter", metavar="TEXT", default="\\n", help="The text behind each record; \\n.")
@click.option("-K", "key_delimiter", metavar="TEXT", help="Print keys, and this between key and value.")
@click.option("-Z", "prints_null", is_flag=True, help="Print NULL for keys and values that are null.")
@click.option("-u", "is_unbuffered", is_flag=True, help="Write every record by itself.")
@click.option("-q", "is_quiet", is_flag=True, help="Say nothing on stderr but failures.")
@click.argument("more_topics", metavar="[TOPIC]...", nargs=-1)
@speaks_to_brokers
def command(
    to: Connecting,
    topics: tuple[str, ...],
    indexes: tuple[int, ...],
    group: str | None,
    offsets: tuple[str, ...],
    count: int | None,
    ends: bool,
    format_: str | None,
    is_json: bool,
    delimiter: str,
    key_delimiter: str | None,
    prints_null: bool,
    is_unbuffered: bool,
    is_quiet: bool,
    more_topics: tuple[str, ...],
) -> None:
    """Write the records of topics to stdout, and go on as more come.

    \b
    oncelog consume -t orders -e                      everything that is there
    oncelog consume -t orders -o -10 -e               the last ten of each partition
    oncelog consume -t orders -o s@1700000000000      from a time on
    oncelog consume -t orders -f '%p %o %k: %s\\n'     with partition, offset and key
    oncelog consume -t orders -G billing              as a member of a group

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C.
    """
    from oncelog.cli.parts.consume_loop import Limits
    from oncelog.cli.parts.start_offsets import parse_range

    what = What(tuple(dict.fromkeys((*topics, *more_topics))), indexes, group, parse_range(offsets))
    _refuse_what_cannot_be_meant(what, to)
    shape = Shape(format_, is_json, delimiter, key_delimiter, prints_null)
    limits = Limits(count, ends, is_unbuffered=is_unbuffered, is_quiet=is_quiet)
    with ended_by_sigterm():
        _consume(to, what, shape, limits)


def _refuse_what_cannot_be_meant(what: What, to: Connecting) -> None:
    from oncelog.cli.parts.start_offsets import Where

    if not what.topics:
        raise click.UsageError("no topic is named: -t TOPIC")
    if what.group == "":
        raise click.UsageError("-G is empty: which group?")
    start, stop_ms = what.range.start, what.range.stop_ms
    if what.group is None:
        if start is not None and start.where is Where.STORED and "group.id" not in to.properties:
            raise click.UsageError("-o stored: stored by whom? -X group.id=GROUP names the group")
        return
    if what.indexes:
        raise click.UsageError("-p: the members of a group share all partitions")
    if stop_ms is not None or (start is not None and start.where not in (Where.BEGINNING, Where.END, Where.STORED)):
        raise click.UsageError("-o: a group goes on where it is; `oncelog groups reset` takes it elsewhere")


def _consume(to: Connecting, what: What, shape: Shape, limits: "Limits") -> None:
    from oncelog.cli.parts.cluster import opened
    from oncelog.cli.parts.consume_loop import ConsumeLoop
    from oncelog.cli.parts.start_offsets import END_TIME, at_time
    from oncelog.client.consumer.consumer import Consumer

    form = _form(shape)  # what is wrong with it shows before anyone is asked
    properties = _properties(to, what)
    with opened(to) as cluster:
        # Patterns are the group's to look up, again and again.
        names = [name for name in what.topics if what.group is None or not name.startswith("^")]
        places = cluster.places(names, what.indexes)
        render = _envelopes(shape, cluster.leaders(places)) if form is None else form.renderer()
        starts = {} if what.group is not None else _starts(cluster, places, what.range)
        if what.range.stop_ms is not None:
            stops = at_time(cluster, places, what.range.stop_ms, cluster.offsets(places, END_TIME))
            limits = replace(limits, stops=stops)
    with Consumer(properties) as consumer:
        loop = ConsumeLoop(consumer, render, sys.stdout.buffer, limits, form)
        if what.group is not None:
            loop.share(what.group, list(what.topics))
        else:
            loop.assign(starts)
        loop.run()


def _starts(cluster: "Cluster", places: "list[Place]", asked: "Range") -> "Mapping[Place, int]":
    from oncelog.cli.parts.start_offsets import BEGINNING_TIME, Where, starts
    from oncelog.client.types import OFFSET_STORED

    if asked.start is None:
        return cluster.offsets(places, BEGINNING_TIME)
    if asked.start.where is Where.STORED:
        return dict.fromkeys(places, OFFSET_STORED)
    return starts(cluster, places, asked.start)


def _properties(to: Connecting, what: What) -> dict[str, object]:
    """The properties of the consumer. Without a group nothing is committed; with one, what was written."""
    from oncelog.cli.parts.start_offsets import Where

    start = what.range.start
    begins_at_end = start is not None and start.where is Where.END
    properties = to.of(
        CONSUMER,
        auto_offset_reset="latest" if begins_at_end else "earliest",
        enable_auto_commit=what.group is not None,
    )
    properties |= {"enable.partition.eof": True, "enable.auto.offset.store": False}
    if what.group is not None:
        properties["group.id"] = what.group
    return properties


def _form(shape: Shape) -> "Form | None":
    """None for JSON."""
    from oncelog.cli.parts import records

    null = records.NULL if shape.prints_null else b""
    delimiter = records.unescape(shape.delimiter)
    if shape.is_json:
        return None
    if shape.format is not None:
        return records.by_format(shape.format, null)
    if shape.key_delimiter is not None:
        return records.keys_and_values(records.unescape(shape.key_delimiter), delimiter, null)
    return records.values(delimiter, null)


def _envelopes(shape: Shape, leaders: "Mapping[Place, int]") -> "Renderer":
    from oncelog.cli.parts import records

    return records.envelopes(records.unescape(shape.delimiter), leaders)
