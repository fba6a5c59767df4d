"""`oncelog users`: who may prove who they are by a password, and what proves it. A password is never an argument: every
user of the machine sees command lines."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from oncelog.cli.parts.endings import failure, nearest, speaks_to_brokers
from oncelog.cli.parts.groups import ListsAtFirst
from oncelog.cli.parts.options import Connecting, connecting, formatted
from oncelog.cli.parts.output import emit
from oncelog.cli.parts.rules import on_cluster

if TYPE_CHECKING:
    from concurrent.futures import Future

    from oncelog.cli.parts.cluster import Cluster
    from oncelog.client.admin import UserScramCredentialAlteration, UserScramCredentialsDescription
    from oncelog.security.documents import Change, Document

T = TypeVar("T")
COLUMNS = ("user", "mechanism", "iterations")
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MOST_PASSWORD_BYTES = 4096

data_option = click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="In a data folder that no server runs in; `add` makes it for the first start.",
)
cluster_option = click.option(
    "--cluster", metavar="zk://HOST:PORT,.../FOLDER", help="Where the brokers of a cluster agree, up or not."
)
mechanisms_option = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS, case_sensitive=False),
    multiple=True,
    help="Only this one; both if not given.",
)


@click.group(name="users", cls=ListsAtFirst)
def command() -> None:
    """List, add and remove users with passwords; without a command: list."""


@command.command(name="list")
@connecting
@formatted
@data_option
@cluster_option
@click.argument("names", metavar="[NAME...]", nargs=-1)
@speaks_to_brokers
def list_users(to: Connecting, form: str, data: Path | None, cluster: str | None, names: tuple[str, ...]) -> None:
    """All users, or those that are named, with their mechanisms."""
    from oncelog.cli.parts.cluster import opened

    if data is not None or cluster is not None:
        users = _stored(data, cluster)
    else:
        with opened(to, takes=on_cluster("Describe")) as found:
            users = {
                name: {NAMES[info.mechanism]: info.iterations for info in each.scram_credential_infos}
                for name, each in _all(found).items()
            }
    if names:
        users = {name: _named(name, users) for name in dict.fromkeys(names)}
    rows = [
        {"user": name, "mechanism": mechanism, "iterations": iterations}
        for name, mechanisms in users.items()
        for mechanism, iterations in mechanisms.items()
    ]
    emit(form, rows, rows, COLUMNS)


NAMES = dict(enumerate(MECHANISMS, 1))


@command.command()
@connecting
@data_option
@cluster_option
@mechanisms_option
@click.option(
    "--iterations",
    metavar="N",
    type=click.IntRange(4096, 16_384),
    default=8192,
    show_default=True,
    help="How slow guessing is.",
)
@click.option(
    "--password-file", metavar="FILE", type=click.File("rb"), help="Its first line is the password; - is the input."
)
@click.option("--password-env", metavar="NAME", help="The variable of the environment that is the password.")
@click.argument("name")
@speaks_to_brokers
def add(
    to: Connecting,
    data: Path | None,
    cluster: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Any,
    password_env: str | None,
    name: str,
) -> None:
    """Add a user, or give one another password. It is asked for, or read from a file or a variable."""
    wanted = tuple(dict.fromkeys(mechanisms)) or MECHANISMS
    password = _password(name, password_file, password_env)
    if data is not None or cluster is not None:
        from oncelog.server.users import adding, new_credentials

        _change_stored(data, cluster, lambda: adding(name, new_credentials(password, wanted, iterations)))
        return
    from oncelog.client.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    def upsertion(mechanism: str) -> "UserScramCredentialAlteration":
        info = ScramCredentialInfo(ScramMechanism(MECHANISMS.index(mechanism) + 1), iterations)
        return UserScramCredentialUpsertion(name, info, password.encode())

    _alter(to, [upsertion(each) for each in wanted])


@command.command()
@connecting
@data_option
@cluster_option
@mechanisms_option
@click.argument("name")
@speaks_to_brokers
def remove(to: Connecting, data: Path | None, cluster: str | None, mechanisms: tuple[str, ...], name: str) -> None:
    """Remove a user. Connections that it has already go on until they have to prove it again."""
    if data is not None or cluster is not None:
        from oncelog.server.users import removing

        _change_stored(data, cluster, lambda: removing(name, mechanisms))
        return
    from oncelog.cli.parts.cluster import opened
    from oncelog.client.admin import UserScramCredentialDeletion

    with opened(to, takes=on_cluster("Alter")) as found:
        users = _all(found)
    has = [info.mechanism for info in _named(name, users).scram_credential_infos]
    wanted = [each for each in has if not mechanisms or NAMES[each] in mechanisms]
    if not wanted:
        raise failure(f"{name} has only {', '.join(NAMES[each] for each in has)}")
    _alter(to, [UserScramCredentialDeletion(name, each) for each in wanted])


def _all(cluster: "Cluster") -> "dict[str, UserScramCredentialsDescription]":
    cluster.metadata()
    future: Future[Any] = cluster.admin.describe_user_scram_credentials()  # type: ignore[assignment]
    found: dict[str, UserScramCredentialsDescription] = future.result()
    return dict(sorted(found.items()))


def _named(name: str, users: dict[str, T]) -> T:
    if name not in users:
        raise failure(f"there is no user {name}{nearest(name, users)}: `oncelog users` lists all")
    return users[name]


def _alter(to: Connecting, alterations: "list[UserScramCredentialAlteration]") -> None:
    """One after the other: Kafka takes a user only once in a request."""
    from oncelog.cli.parts.cluster import opened

    with opened(to, takes=on_cluster("Alter")) as cluster:
        cluster.metadata()
        for each in alterations:
            for future in cluster.admin.alter_user_scram_credentials([each]).values():
                future.result()


def _stored(data: Path | None, where: str | None) -> dict[str, dict[str, int]]:
    """A look is a change that changes nothing. Where no server has ever been, nothing is to be made for it."""
    from oncelog.cluster.file import META_FILE, TREE_FOLDER
    from oncelog.security.users import Users

    if data is not None and not any((data / each).exists() for each in (META_FILE, TREE_FOLDER)):
        raise failure(f"{data} is no server's data folder: `oncelog users add NAME --data {data}` makes one")
    users = Users(_change_stored(data, where, lambda: lambda document: document), b"")
    return {name: users.mechanisms(name) for name in users.names}


def _change_stored(data: Path | None, where: str | None, change: "Callable[[], Change]") -> "Document":
    from oncelog.cluster.file import DamagedFolder, UnfitFolder
    from oncelog.cluster.folder_lock import FolderInUse
    from oncelog.cluster.tree import TreeError
    from oncelog.log.errors import LogError
    from oncelog.security.documents import TooMuch
    from oncelog.server.errors import KafkaError
    from oncelog.settings import SettingsError

    if data is not None and where is not None:
        raise click.UsageError("--data and --cluster: name one of them")
    try:
        if where is None:
            from oncelog.cluster.stored_documents import change_in_folder
            from oncelog.security.documents import Kind

            return change_in_folder(str(data), Kind.USERS, change())
        from oncelog.embedded import change_users_at

        return change_users_at(where, change())
    except KafkaError as refusal:
        raise failure(refusal.message or refusal.code.name) from refusal
    except (FolderInUse, DamagedFolder, UnfitFolder, LogError, SettingsError, TooMuch, TreeError) as refusal:
        raise failure(str(refusal)) from refusal


def _password(name: str, file: Any, variable: str | None) -> str:
    if file is not None and variable is not None:
        raise click.UsageError("--password-file and --password-env: name one of them")
    if variable is not None:
        password = os.environ.get(variable, "")
        where = f"the variable {variable}"
    elif file is not None:
        line: bytes = file.readline(MOST_PASSWORD_BYTES + len(b"\r\n"))
        password = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        where = "the first line of --password-file"
    else:
        if not can_ask():
            raise click.UsageError(
                "without a terminal the password cannot be asked for: give it by --password-file FILE (- is the input) "
                "or --password-env NAME"
            )
        password = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        where = "the password"
    if not password:
        raise click.UsageError(f"{where} is empty")
    _refuse_unless_whole(where, password)
    return str(password)


def _refuse_unless_whole(where: str, password: str) -> None:
    """A part of it would be another password, which nobody knows."""
    if len(password.encode("utf-8", "surrogateescape")) > MOST_PASSWORD_BYTES:
        raise click.UsageError(f"{where} is longer than a password may be: {MOST_PASSWORD_BYTES:,} bytes")
    try:
        password.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"{where} is no UTF-8") from None


def can_ask() -> bool:
    """Whether a terminal is there, as the input or, as for ssh and sudo, beside it."""
    if sys.stdin.isatty():
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
