"""The consumer's two faces are one text: `Consumer` is made from `AsyncConsumer` by `python -m tests.repo.faces`.

The words of waiting (`async`, `await`) are left out. What differs otherwise is listed here.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.repo.tree import ROOT

SOURCE: Final = ROOT / "src/oncelog/client/consumer/asynchronous.py"
MADE: Final = ROOT / "src/oncelog/client/consumer/consumer.py"

_HEADLINE: Final = '''"""The consumer for programs that know nothing of asyncio, in the shape of confluent-kafka's.

A thread of its own fetches ahead. Records are decoded in the application's thread, a block at a time, and handed out
from there: most calls of `poll` touch neither the other thread nor a lock. Made from `asynchronous.py`, to be changed
there: `python -m tests.repo.faces`.
"""
'''
_PIECES: Final = (
    (
        '"""A consumer for one task, on the event loop that it is started on (`async with`, or `await start()`)."""',
        '"""A consumer for one thread, which polls. Other calls come from the same thread."""',
    ),
    (
        "    async def start(self) -> Self:\n        await self._driver.start()\n        return self\n\n",
        "",
    ),
    ("in the task that polls", "in the thread that polls"),
    (
        """It is waited for, and 60 seconds without an answer are a failure, unless `asynchronous` is given: then the
        outcome is told to `on_commit` when the application polls. With a `producer`""",
        """Asynchronously the outcome is told to `on_commit` when the application polls; otherwise it is returned, and
        60 seconds without an answer are a failure. With a `producer`""",
    ),
    ("return await self.start()", "return self"),
)
_WORDS: Final = {
    "async ": "",
    "await ": "",
    "AsyncConsumer": "Consumer",
    "AsyncIterator": "Iterator",
    "OnLoop": "InThread",
    "on_loop": "in_thread",
    "__aiter__": "__iter__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}


def made_from(text: str) -> str:
    body = text[text.index('"""\n\nfrom ') + 4 :]
    for piece, instead in _PIECES:
        assert piece in body, f"not there any more, and so not changed: {piece!r}"
        body = body.replace(piece, instead)
    made = _HEADLINE + re.sub("|".join(map(re.escape, _WORDS)), lambda found: _WORDS[found[0]], body)
    return _ruff("format", "-q", text=_ruff("check", "-q", "--select", "I", "--fix-only", text=made))


def _ruff(*arguments: str, text: str) -> str:
    """Lines are shorter without these words, and modules sort otherwise under their other names."""
    command = [str(Path(sys.executable).with_name("ruff")), *arguments, "--stdin-filename", str(MADE), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    MADE.write_text(made_from(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
