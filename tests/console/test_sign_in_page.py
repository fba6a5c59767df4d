"""Signing in as a person does it, in a real browser."""

from collections.abc import Iterator

import pytest

from oncelog.console.serving import Console
from oncelog.embedded import Server
from oncelog.server.users import add_user
from tests.console.browser import Browser
from tests.console.conftest import Shown

PASSWORD = "correct horse"


@pytest.fixture
def shown() -> Iterator[Shown]:
    with Server(oncelog_console_sign_in="always", connection_failed_authentication_delay_ms=1) as server:
        found = Shown(server)
        found.run(add_user(server.broker, "alice", PASSWORD))
        yield found
        found.stage.close()


@pytest.fixture
def console(shown: Shown) -> Iterator[Console]:
    console = Console(shown.server.broker, "127.0.0.1", 0)
    shown.run(console.start())
    yield console
    shown.run(console.stop())


def signs_in(browser: Browser, user: str, password: str) -> None:
    """By the keyboard alone: the name has the focus."""
    browser.wait("document.activeElement?.id === 'user'", "the name to have the focus")
    browser.write(user)
    browser.press("Tab")
    browser.write(password)
    browser.press("Enter")


def test_a_person_signs_in_looks_and_signs_out(browser: Browser, shown: Shown, console: Console) -> None:
    name = shown.new_topic()
    browser.open(f"{console.address}#/topics")
    browser.sees("Sign in")
    assert "Sign out" not in browser.text("header")
    signs_in(browser, "alice", "wrong")
    browser.sees("No user has this name and password.", "[role=alert]")
    assert browser.run("document.getElementById('password').value") == ""
    browser.write(PASSWORD)  # the password has the focus now
    browser.press("Enter")
    browser.sees(name)
    browser.sees("alice", "header")
    assert browser.run("document.cookie") == "", "no script can read what is kept of it"
    browser.run("location.reload()")
    browser.sees(name)
    browser.wait("document.getElementById('sign-out')", "a way out")
    browser.run("document.getElementById('sign-out').click()")
    browser.sees("Sign in")
    browser.wait("document.getElementById('sign-out') === null", "nobody to be signed in any more")
    assert name not in browser.text()


def test_whose_password_is_changed_is_asked_again_and_goes_on_where_it_was(
    browser: Browser, shown: Shown, console: Console
) -> None:
    name = shown.new_topic()
    browser.open(f"{console.address}#/topic?topic={name}")
    signs_in(browser, "alice", PASSWORD)
    browser.sees(name)
    shown.run(add_user(shown.server.broker, "alice", "another"))
    browser.sees("Sign in")
    signs_in(browser, "alice", "another")
    browser.sees(name)
