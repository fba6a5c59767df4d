"""A headless Chromium, driven by its DevTools protocol over a pipe: no port, no driver, no further library.

Chromium reads commands from descriptor 3 and writes answers and events to descriptor 4, each as JSON with a zero byte
behind it. One tab is attached to; what the page logs as errors is kept for the tests to look at.
"""

import base64
import json
import os
import selectors
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.peers.jars import MissingPeer

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
ANSWER_SECONDS = 30.0
READ_BYTES = 1 << 16
DESKTOP = (1280, 800)
PHONE = (375, 812)
NOWHERE = "about:blank"
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "/": 191}
TYPED = {"Enter": "\r", " ": " ", "/": "/"}


class BrowserError(AssertionError):
    """The browser refused a command, or a script of the test failed in the page."""


def chromium() -> str:
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    raise MissingPeer("there is no Chromium on the path; on Debian `apt-get install --no-install-recommends chromium`")


class Browser:
    def __init__(self, profile: Path) -> None:
        self._profile = profile
        self._process: subprocess.Popen[bytes] | None = None
        self._to = self._from = -1
        self._received = bytearray()
        self._number = 0
        self._session: str | None = None
        self._at: list[str] = []  # where its page has got to, since it was to be left
        self.errors: list[str] = []  # of the console, and exceptions nobody caught

    # --- its life

    def __enter__(self) -> Self:
        command = [chromium(), *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        read_commands, self._to = os.pipe()
        self._from, write_answers = os.pipe()
        # The shell gives the pipes the numbers that Chromium expects, whatever they are here.
        script = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
        try:
            self._process = subprocess.Popen(
                ["bash", "-c", script, "chromium", *command],
                pass_fds=(read_commands, write_answers),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(read_commands)
            os.close(write_answers)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(DESKTOP)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        self._session = None
        try:
            self._send("Browser.close", {})
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

    # --- the protocol

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = self._send(method, parameters)
        give_up = time.monotonic() + ANSWER_SECONDS
        while True:
            message = self._next(give_up, method)
            if message.get("id") == number:
                break
        if "error" in message:
            raise BrowserError(f"{method}: {message['error']}")
        answer: dict[str, Any] = message["result"]
        return answer

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        return self._number

    def _is_readable(self, seconds: float) -> bool:
        with selectors.DefaultSelector() as ready:
            ready.register(self._from, selectors.EVENT_READ)
            return bool(ready.select(seconds))

    def _next(self, give_up: float, what: str) -> dict[str, Any]:
        while (end := self._received.find(b"\0")) < 0:
            left = give_up - time.monotonic()
            if left <= 0 or not self._is_readable(left):
                raise BrowserError(f"no answer to {what} in {ANSWER_SECONDS:g} s")
            data = os.read(self._from, READ_BYTES)
            if not data:
                raise BrowserError(f"the browser ended before it answered {what}")
            self._received += data
        message: dict[str, Any] = json.loads(bytes(self._received[:end]))
        del self._received[: end + 1]
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.errors.append(str(details.get("exception", {}).get("description", details.get("text"))))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "assert"):
                self.errors.append(str([each.get("value", each.get("description")) for each in parameters["args"]]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                entry = parameters["entry"]
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            case "Page.frameNavigated" if "parentId" not in parameters["frame"]:
                self._at.append(parameters["frame"]["url"])
            case "Page.javascriptDialogOpening":
                self.errors.append(f"a dialog: {parameters['message']}")
            case _:
                pass

    # --- what a person does

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def leave(self) -> None:
        """Whatever the page had under way is over, and said. Waited for is the word that the next one is there: to open
        it may be answered before, and until then the one before goes on asking."""
        self._at.clear()
        self.open(NOWHERE)
        give_up = time.monotonic() + ANSWER_SECONDS
        while NOWHERE not in self._at:
            self._next(give_up, "the page to be left")
        self.errors.clear()

    def resize(self, size: tuple[int, int], scale: float = 1) -> None:
        width, height = size
        is_phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=is_phone
        )

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def offline(self, is_offline: bool) -> None:
        self.call(
            "Network.emulateNetworkConditions",
            offline=is_offline,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def press(self, key: str, *, shift: bool = False) -> None:
        about = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 if shift else 0}
        text = {"text": TYPED[key]} if key in TYPED else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    # --- what a person sees

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def text(self, selector: str = "main") -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def wait(self, script: str, what: str, seconds: float = 15.0) -> Any:
        """The first true value of an expression; the page itself waits, so nothing here sleeps."""
        waiting = (
            f"new Promise((done) => {{ const give_up = Date.now() + {seconds * 1000};"
            f" const look = () => {{ let found; try {{ found = ({script}); }} catch {{ found = null; }}"
            " if (found || Date.now() > give_up) done(found instanceof Node ? true : found);"
            " else setTimeout(look, 20); }; look(); })"
        )
        found = self.run(waiting)
        if not found:
            raise BrowserError(f"waited {seconds:g} s in vain for: {what}; the page says:\n{self.text('body')[:1500]}")
        return found

    def sees(self, text: str, selector: str = "main") -> None:
        here = f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})"
        self.wait(here, f"{text!r} in {selector}")

    def screenshot(self, path: Path) -> None:
        image = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        path.write_bytes(base64.b64decode(image))
