"""The endings of commands: one line that says what to do, and an exit code that scripts can tell apart."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import wraps
from io import UnsupportedOperation
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from oncelog.printable import printable

if TYPE_CHECKING:
    from oncelog.cli.parts.rules import Given

TERMINATED = 143  # 128 and the number of SIGTERM, as a shell says it

LACKS_A_RIGHT = (
    "this user has no right to it; `oncelog topics --acls --help` says what prints the commands by which an "
    "administrator gives one"
)
USER = "oncelog.user"  # where a command's context keeps who asks, where that is said by name
NO_AUTHORIZER = (
    "start the server with --secure, or with "
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
)

P = ParamSpec("P")
T = TypeVar("T")


def failure(words: str) -> click.ClickException:
    """`Error: ...` on one line, and exit code 1. There may be names in it that other clients chose."""
    return click.ClickException(printable(" ".join(words.split("\n"))))


def speaks_to_brokers(body: Callable[P, T]) -> Callable[P, T]:
    """A command's body: what the client refuses or fails with is said in one line."""

    @wraps(body)
    def run(*arguments: P.args, **keywords: P.kwargs) -> T:
        from oncelog.client.errors import KafkaError, KafkaException

        try:
            return body(*arguments, **keywords)
        except KafkaException as refusal:
            if refusal.error.code() == KafkaError._INVALID_ARG:
                raise click.UsageError(refusal.error.str()) from refusal
            raise failure(words_of(refusal.error)) from refusal

    return run


def words_of(error: object, takes: "Given | None" = None) -> str:
    """An error of the client, with what to do about it where that is the same for everyone. `takes`: the right that was
    asked for."""
    from oncelog.client.errors import KafkaError

    assert isinstance(error, KafkaError)
    words = error.str()
    if lacks_a_right(error):
        return f"{words.rstrip('.')}: {_remedy(error, takes)}"
    if error.code() == KafkaError.SECURITY_DISABLED:
        return f"{words.rstrip('.')}: {NO_AUTHORIZER}"
    if "`security.protocol`" in words:  # somebody answers there, who wants something else
        return words
    if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE):
        return f"{words}: start a server with `oncelog serve`, or name another one with -b HOST:PORT"
    if error.code() == KafkaError._TIMED_OUT:
        return f"{words}: is there a Kafka at this address? -b names another one, -m waits longer"
    return words


def lacks_a_right(error: object) -> bool:
    from oncelog.client.errors import KafkaError

    return error in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )


def _remedy(error: object, takes: "Given | None") -> str:
    from oncelog.cli.parts.rules import command_of
    from oncelog.client.errors import KafkaError

    is_of_topic = error == KafkaError.TOPIC_AUTHORIZATION_FAILED
    if takes is None or is_of_topic != (takes.target.kind == "TOPIC"):
        return LACKS_A_RIGHT
    kind, name = takes.target
    what = "the cluster" if kind == "BROKER" else f"the {kind.lower()} {name}"
    return f"this takes {takes.operation} on {what}: `{command_of(f'User:{_user()}', [takes], 'LITERAL')}`"


def _user() -> str:
    context = click.get_current_context(silent=True)
    return "..." if context is None else str(context.meta.get(USER) or "...")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; the nearest known one is {near[0]}" if near else ""


def forget_stdout() -> None:
    """Throw away the buffer of stdout: it would be written when Python ends, and complain then."""
    with suppress(UnsupportedOperation):  # tests put something else in its place
        stdout = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout)
        os.close(nowhere)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that groups are left and positions committed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
