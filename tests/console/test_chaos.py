"""`oncelog chaos --console`: the page of a server that is being killed, looked at meanwhile."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from oncelog.chaos.life import free_ports, listens
from oncelog.chaos.outcome import Progress
from oncelog.chaos.plan import Target
from oncelog.cli.parts.chaos_page import Page
from oncelog.console.faults import FaultFile
from tests.console.browser import Browser
from tests.waiting import until

CHAOS = [sys.executable, "-m", "oncelog", "chaos"]
RUN = ["--messages", "80000", "--rate", "10000", "--every", "4000", "--kill", "connections,responses,server"]
VIEWS = {"topics": "Topics", "producers": "Producers", "groups": "Groups", "spark": "Spark queries", "faults": "Faults"}


@pytest.mark.thorough
def test_every_view_opens_while_the_server_is_killed_again_and_again(browser: Browser, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    chaos = subprocess.Popen(
        [*CHAOS, *RUN, "--console", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: listens(port), "the server of the experiment")
        browser.open(f"http://127.0.0.1:{port}/#/faults")
        browser.wait("document.querySelectorAll('tbody tr').length > 0", "the first fault", 60)
        for view, heading in VIEWS.items():
            browser.run(f"location.hash = '#/{view}'")
            browser.wait(f"document.querySelector('h1')?.innerText === {json.dumps(heading)}", heading, 30)
        before = browser.run("document.querySelectorAll('tbody tr').length")
        browser.wait(f"document.querySelectorAll('tbody tr').length > {before}", "one more fault", 60)
        browser.wait(
            "[...document.querySelectorAll('tbody tr')].some((row) => row.innerText.includes('server'))", "a kill", 60
        )
        browser.run("location.hash = '#/overview'")
        browser.wait("document.querySelectorAll('line.mark').length > 0", "marks of faults in the plot", 30)
        said, _ = chaos.communicate(timeout=120)
    finally:
        chaos.kill()
        chaos.wait()
    assert chaos.returncode == 0, said
    assert said.startswith(f"the page is at http://127.0.0.1:{port}/\n")
    assert [error for error in browser.errors if "net::ERR" not in error] == [], "but for what was asked of the dead"


def test_every_fault_is_told_once(tmp_path: Path) -> None:
    page = Page("127.0.0.1:0", tmp_path)
    progress = Progress()
    page.show(progress, 1)
    progress.happened += [(Target.SERVER, "killed"), (Target.RESPONSES, "swallowed")]
    page.show(progress, 2)
    progress.happened.append((Target.SERVER, "killed again"))
    page.show(progress, 3)
    page.show(progress, 4)
    newest, _ = FaultFile(Path(page.arguments[-1])).newest(10)
    told = [(each.at_ms, each.kind, each.words) for each in newest]
    assert told == [(3, "server", "killed again"), (2, "responses", "swallowed"), (2, "server", "killed")]


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(click.ClickException) as refused:
        Page(f"127.0.0.1:{taken.getsockname()[1]}", tmp_path)
    assert "cannot serve the page on 127.0.0.1:" in refused.value.message


def test_the_page_can_be_at_an_address_of_ip_version_6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which not every machine has."""
    monkeypatch.setattr("oncelog.cli.parts.chaos_page.free_port", lambda host, port: 8080 if host == "::1" else 0)
    assert Page("[::1]:0", tmp_path).address == "[::1]:8080"


def test_a_server_of_yours_has_a_page_of_its_own() -> None:
    command = [*CHAOS, "--servers", "127.0.0.1:1", "--console"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "--console shows a server of the experiment's own" in done.stderr
