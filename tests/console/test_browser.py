"""The tests' own browser."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.console.browser import Browser
from tests.waiting import until

# Three at a time, each as soon as one is answered: one a millisecond, whatever comes back, buries a busy machine.
ASKS_FOR_EVER = b"<script>const ask = () => fetch('/missing').then(ask, ask); ask(); ask(); ask();</script>"


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_page = self.path == "/"
        self.send_response(200 if is_page else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(ASKS_FOR_EVER if is_page else b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def page() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        serving.join()


def test_a_page_that_was_left_tells_no_errors_any_more(browser: Browser, page: str) -> None:
    for _ in range(5):
        browser.open(page)
        browser.wait("performance.getEntriesByType('resource').length > 3", "the page to ask")
        # What it logs comes by another way than what it counts: with any later answer.
        until(lambda: browser.run("true") and any("404" in each for each in browser.errors), "the errors to be told")
        browser.leave()
        for number in range(20):
            assert browser.run(f"new Promise((done) => setTimeout(() => done({number}), 1))") == number
        assert browser.errors == []
