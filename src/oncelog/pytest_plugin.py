"""A log server for tests, without Docker and without a JVM. Installed with the package; nothing needs to be imported.

    def test_orders_arrive(oncelog_server):
        producer = Producer({"bootstrap.servers": oncelog_server.bootstrap_servers})

    def test_orders_outlive_a_broker(oncelog_cluster):
        oncelog_cluster.kill(1)  # of three; start, stop, pause and resume it in the same way

How long one server, or one cluster, lives is the option `oncelog_scope` in pytest's configuration: `function` (the
default: every test starts with an empty log), `class`, `module`, `package` or `session`. Settings are given by a
fixture of the user's own:

    @pytest.fixture
    def oncelog_settings():
        return {"num.partitions": "3"}

This module is imported at the start of every pytest run of everyone who has oncelog installed, so the server itself is
only imported when a test asks for one.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import pytest

if TYPE_CHECKING:
    from oncelog.embedded import Server

BROKERS: Final = 3

Scope = Literal["function", "class", "module", "package", "session"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "oncelog_scope",
        f"how long one oncelog_server or oncelog_cluster lives: one of {', '.join(get_args(Scope))}",
        default="function",
    )


def pytest_configure(config: pytest.Config) -> None:
    _scope("oncelog_server", config)  # an impossible scope stops the run before it begins


def _scope(fixture_name: str, config: pytest.Config) -> Scope:
    chosen = config.getini("oncelog_scope")
    for scope in get_args(Scope):
        if chosen == scope:
            found: Scope = scope
            return found
    raise pytest.UsageError(f"oncelog_scope = {chosen}: expected one of {', '.join(get_args(Scope))}")


@pytest.fixture(scope=_scope)
def oncelog_settings() -> Mapping[str, str]:
    """Settings of the server, or of each broker of the cluster, under Kafka's names; override it to change some."""
    return {}


@pytest.fixture(scope=_scope)
def oncelog_server(oncelog_settings: Mapping[str, str]) -> Iterator["Server"]:
    """A running server: `oncelog_server.bootstrap_servers` is what a Kafka client wants to know."""
    yield from _serving(oncelog_settings, brokers=1)


@pytest.fixture(scope=_scope)
def oncelog_cluster(oncelog_settings: Mapping[str, str]) -> Iterator["Server"]:
    """Three brokers that have each other's records, numbered from 1. `kill`, `start`, `stop`, `pause` and `resume` take
    a broker's number."""
    yield from _serving(oncelog_settings, brokers=BROKERS)


def _serving(settings: Mapping[str, str], *, brokers: int) -> Iterator["Server"]:
    from oncelog.arguments import check_kind
    from oncelog.embedded import Server
    from oncelog.settings import SettingsError

    try:
        check_kind("oncelog_settings", settings, Mapping, 'a fixture that returns {"num.partitions": "3"} or the like')
        server = Server(brokers=brokers, settings=settings)
    except (SettingsError, TypeError) as refusal:
        refusal.add_note("These settings come from the fixture oncelog_settings.")
        raise
    with server:
        yield server


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, None]:
    """pytest names the two fixtures whose scopes clash, but cannot know what is to be done."""
    outcome = yield
    error = outcome.excinfo[1] if outcome.excinfo else None
    if isinstance(error, pytest.fail.Exception) and "ScopeMismatch" in str(error) and "oncelog_settings" in str(error):
        scope = item.config.getini("oncelog_scope")
        outcome.force_exception(
            pytest.fail.Exception(
                f"One oncelog_server or oncelog_cluster lives as long as oncelog_scope = {scope} says, so what gives "
                f'it its settings must live as long: write @pytest.fixture(scope="{scope}") above oncelog_settings, '
                "and above the fixtures "
                f"that it uses.\n{error}",
                pytrace=False,
            )
        )
