"""The command line: one file per command, imported when that command is called.

Files whose names begin with an underscore are what commands share. What is promised of all of them, exit codes
included, stands in docs/cli.md.
"""

import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from oncelog import __version__
from oncelog.cli.parts.endings import forget_stdout
from oncelog.cli.parts.groups import Pointing

INTERRUPTED = 130  # as a shell says it of a command that Ctrl-C ended
# kcat's letters for what it does, of which one stands anywhere on its command line.
MODES = {"-P": "produce", "-C": "consume", "-G": "consume", "-L": "topics"}
# The names of an option in other tools, by the option of ours and what it takes.
MEANT = {
    "-b": ("HOST:PORT", ("--bootstrap-server", "--bootstrap-servers", "--broker", "--brokers", "--broker-list")),
    "-t": ("TOPIC", ("--topic", "--topics")),
    "-p": ("N", ("--partition", "--partitions")),
    "-G": ("GROUP", ("--group", "--group-id")),
    "--listen": ("HOST:PORT", ("--port", "--host", "--bind", "-b", "-p")),
    "--data": ("DIR", ("--data-dir", "--dir", "-d")),
}
GROUP = "-G"  # this one is also an option, with a value


class WrongUsage(click.ClickException):
    exit_code = 2


class Commands(Pointing):
    """Finds `serve` in `serve.py`, so that one command never pays for what another one imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        files = Path(__file__).parent.glob("[a-z]*.py")
        return sorted(file.stem.replace("_", "-") for file in files)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        return command

    def main(self, *arguments: Any, **keywords: Any) -> Any:
        _open_what_is_closed()
        reach = logging.getLogger("oncelog.client.reach")
        before = reach.level
        reach.setLevel(logging.ERROR)  # a command says itself what it could not reach
        try:
            return super().main(*arguments, **keywords)
        finally:
            reach.setLevel(before)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, _with_command(args))
        except BrokenPipeError:
            raise  # click's own affair
        except OSError as refusal:  # --help and --version write where they are read
            raise _refused(refusal) from refusal

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.UsageError as wrong:
            raise _one_line(wrong) from wrong
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except click.Abort as given_up:
            # Where something is asked for, click takes Ctrl-C and the end of the input for the same.
            if isinstance(given_up.__context__, KeyboardInterrupt):
                raise SystemExit(INTERRUPTED) from None
            raise
        except BrokenPipeError:
            # The reader of our output ended early, as `head` does: that is no failure.
            forget_stdout()
            raise SystemExit(0) from None
        except OSError as refusal:
            raise _refused(refusal) from refusal


def _refused(refusal: OSError) -> click.ClickException:
    forget_stdout()
    words = refusal.strerror or str(refusal)
    return click.ClickException(f"{refusal.filename}: {words}" if refusal.filename else words)


def _open_what_is_closed() -> None:
    """Open what some supervisors start us without (`<&-`, `2>&-`). The next file or socket would get the free number
    and be taken for stdin or stderr: libuv aborts when it closes such a one, and what is written to stderr would go to
    a socket."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", closefd=False))


def _with_command(args: list[str]) -> list[str]:
    """`-b host -P -t topic`, kcat's way, is `produce -b host -t topic`."""
    if not args or not args[0].startswith("-"):
        return args
    at = next((at for at, each in enumerate(args) if each in MODES), None)
    if at is None:
        return args
    behind = at if args[at] == GROUP else at + 1
    return [MODES[args[at]], *args[:at], *args[behind:]]


def _one_line(wrong: click.UsageError) -> click.ClickException:
    """click's own words take four lines, of which one says what is wrong."""
    words = (_meant_option(wrong) or wrong.format_message()).rstrip(".")
    path = wrong.ctx.command_path if wrong.ctx is not None else "oncelog"
    return WrongUsage(f"{words} (see `{path} --help`)")


def _meant_option(wrong: click.UsageError) -> str | None:
    """Words for who knows an option by its name in another tool."""
    if not isinstance(wrong, click.NoSuchOption) or wrong.ctx is None:
        return None
    known = {name for each in wrong.ctx.command.params for name in each.opts}
    for option, (value, others) in MEANT.items():
        if option in known and wrong.option_name in others:
            return f"No such option {wrong.option_name!r}: it is {option} {value}"
    return None


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="oncelog")
def main() -> None:
    """A log that keeps every record once, spoken to with the Kafka protocol."""
