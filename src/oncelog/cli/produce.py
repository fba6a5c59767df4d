"""`oncelog produce`: records from stdin or files, in kcat's letters."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from oncelog.cli.parts.endings import ended_by_sigterm, speaks_to_brokers
from oncelog.cli.parts.options import PRODUCER, Connecting, connecting
from oncelog.printable import printable

if TYPE_CHECKING:
    from oncelog.cli.parts.lines import Fixed
    from oncelog.cli.parts.record_sender import RecordSender

# The time that Ctrl-C and SIGTERM leave for records that were read already.
INTERRUPTED_FLUSH_S = 5.0
REFUSED_FLUSH_S = 5.0
MANY_LINES = 50_000  # behind this many it is worth loading what sends columns


@dataclass(frozen=True, slots=True)
class Source:
    """The options that say where records come from."""

    files: tuple[Path, ...]
    are_lines: bool
    is_json: bool
    delimiter: bytes


class _File(click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            # Options come first, so what was said is known.
            if ctx is None or ctx.params.get("topic") is not None or ctx.params.get("is_json"):
                raise
            raise click.UsageError(f"there is no file {value}, and no topic is named: -t {value}?", ctx) from None


@click.command(name="produce")
@connecting
@click.option("-t", "topic", metavar="TOPIC", help="Where to. With -J each record may say it.")
@click.option(
    "-p",
    "partition",
    metavar="N",
    type=click.IntRange(min=-1),
    help="The partition; -1 lets the key choose, also with -J, where records say theirs.",
)
@click.option("-k", "key", metavar="KEY", help="The key of all records; with -K and -J, of those without.")
@click.option("-K", "key_delimiter", metavar="TEXT", help="The text between key and value.")
@click.option("-D", "delimiter", metavar="TEXT", default="\\n", help="The text between records; \\n.")
@click.option("-H", "headers", metavar="NAME=VALUE", multiple=True, help="A header of all records; repeatable.")
@click.option("-J", "is_json", is_flag=True, help="Lines as `consume -J` prints them.")
@click.option("-z", "codec", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="Compression.")
@click.option("-c", "count", metavar="N", type=click.IntRange(min=1), help="End after N records.")
@click.option("-l", "are_lines", is_flag=True, help="Files are cut at the delimiter, as stdin is.")
@click.option("-Z", "empty_is_null", is_flag=True, help="Empty keys and values are sent as null.")
@click.option("-q", "is_quiet", is_flag=True, help="kcat's; nothing is said anyway.", hidden=True)
@click.argument("files", nargs=-1, type=_File(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@speaks_to_brokers
def command(
    to: Connecting,
    topic: str | None,
    partition: int | None,
    key: str | None,
    key_delimiter: str | None,
    delimiter: str,
    headers: tuple[str, ...],
    is_json: bool,
    codec: str | None,
    count: int | None,
    are_lines: bool,
    empty_is_null: bool,
    is_quiet: bool,
    files: tuple[Path, ...],
) -> None:
    """Send lines of stdin, or files, as records.

    \b
    oncelog produce -t orders < lines                       a record a line
    oncelog produce -t orders -K : < lines                  key:value
    oncelog produce -t orders -l one.txt two.txt            a record a line
    oncelog produce -t photos cat.jpg dog.jpg               a record a file
    oncelog consume -t a -J -e | oncelog produce -t b -J    keys, headers, times and partitions as they were

    It ends when every record is acknowledged; each is stored once, in the order of the input.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C.
    """
    from oncelog.cli.parts.lines import Fixed
    from oncelog.cli.parts.record_sender import Target
    from oncelog.cli.parts.records import unescape

    source = Source(files, are_lines, is_json, unescape(delimiter))
    if not source.delimiter:
        raise click.UsageError("-D is empty: give the text that stands between records")
    if topic is None and not is_json:
        raise click.UsageError("no topic is named: -t TOPIC")
    fixed = Fixed(
        None if key is None else _typed(key),
        [_header(each) for each in headers] or None,
        None if key_delimiter is None else unescape(key_delimiter),
        empty_is_null,
    )
    if fixed.key_delimiter == b"":
        raise click.UsageError("-K is empty: give the text that stands between key and value")
    properties = to.of(PRODUCER, **({} if codec is None else {"compression.codec": codec}))
    with ended_by_sigterm(), _sender(properties, to, Target(topic, partition), count) as sender:
        _produce(sender, source, fixed)


@contextmanager
def _sender(properties: dict[str, Any], to: Connecting, target: Any, count: int | None) -> "Iterator[RecordSender]":
    """The sender. Records read before Ctrl-C or SIGTERM, or before what is refused or cannot be read, are still sent,
    for a while."""
    from oncelog.cli.parts.record_sender import RecordSender
    from oncelog.client.errors import KafkaException

    sender = RecordSender(properties, to.timeout_s, target, count)
    try:
        yield sender
        sender.finish()
    except (KeyboardInterrupt, SystemExit):
        _give_up(sender, INTERRUPTED_FLUSH_S)
        raise
    except (KafkaException, click.ClickException, OSError):
        _give_up(sender, REFUSED_FLUSH_S)
        raise
    finally:
        sender.close()


def _give_up(sender: "RecordSender", timeout_s: float) -> None:
    is_told = bool(sender.refused)
    left = sender.give_up(timeout_s)
    if left:
        click.echo(f"{left} records were not acknowledged; they may be stored or not", err=True)
    if sender.refused and not is_told:  # of those before what ends it; or somebody would go on behind them
        click.echo(printable(sender.refused), err=True)


def _produce(sender: "RecordSender", source: Source, fixed: "Fixed") -> None:
    from oncelog.cli.parts.lines import Record

    if source.files and not (source.are_lines or source.is_json):
        for file in source.files:
            value = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
            sender.send([Record(value, fixed.key, fixed.headers)])
        return
    for file in source.files or (Path("-"),):
        if str(file) == "-":
            _send_stream(sender, "stdin", sys.stdin.buffer, source, fixed)
        else:
            with file.open("rb", buffering=0) as stream:
                _send_stream(sender, str(file), stream, source, fixed)


def _send_stream(sender: "RecordSender", name: str, stream: BinaryIO, source: Source, fixed: "Fixed") -> None:
    from oncelog.cli.parts import columns
    from oncelog.cli.parts.lines import cells_of, gathered, of_envelopes, of_lines, pieces

    is_plain = fixed.is_plain and not source.is_json
    first_line = 1
    found = pieces(stream, name, source.delimiter, sender.most_bytes)
    for lines in found:
        if sender.is_over:
            return
        if first_line > MANY_LINES and fixed.are_cells and not source.is_json and columns.are_there():
            for many in gathered(chain((lines,), found), stream):
                sender.send_columns(*cells_of(many, fixed))
                if sender.is_over:
                    return
            return
        if is_plain:
            sender.send_values(lines)
        elif source.is_json:
            sender.send(of_envelopes(lines, fixed, name, first_line))
        else:
            sender.send(of_lines(lines, fixed))
        first_line += len(lines)


def _header(text: str) -> tuple[bytes, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"-H {text}: expected NAME=VALUE")
    return _typed(name), _typed(value) if equals else None


def _typed(text: str) -> bytes:
    """The bytes of the command line, whatever they are."""
    return text.encode("utf-8", "surrogateescape")
