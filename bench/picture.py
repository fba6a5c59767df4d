"""`python -m bench.picture`: runs `./dev run` in a terminal of its own and keeps what it showed, as docs/run.svg.

The picture has the run's own figures: a few moments of it one after another, then the end, for as long as it takes to
read. Where nothing moves (in print, or where the reader wants it so) there is the end alone.
"""

import html
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.screen import Picture, Screen, Stretch, text_of

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "run.svg"
COLUMNS, ROWS = 100, 50
MOMENTS: Final = 14
MOMENT_S: Final = 0.7
END_S: Final = 12.0
WIDE, TALL, EDGE = 8.0, 18, 16  # pixels of a character, of a line, around all
PROMPT: Final = "$ ./dev run"
NOT_SHOWN: Final = ("dev: ", "Go on")  # what is set up before, and the words that follow
_STYLE: Final = (
    ".back{fill:#0d1117}text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;"
    "white-space:pre}.dim{fill:#9198a1}.yellow{fill:#d29922}.green{fill:#3fb950}.red{fill:#ff7b72}.cyan{fill:#39c5cf}"
    ".bold{font-weight:700}.full{fill:#3fb950}.empty{fill:#30363d}"
)


def record(command: Sequence[str]) -> Iterator[tuple[float, Picture]]:
    """What stands on the screen, whenever that has changed; the command must end well."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (ROWS, COLUMNS))
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    began_s = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    screen, pending = Screen(), b""
    while chunk := _read(ours):
        *whole, pending = (pending + chunk).split(b"\n")
        screen.write("".join(line.decode() + "\n" for line in whole))
        yield time.monotonic() - began_s, screen.picture()
    if process.wait():
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}: no picture of that")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""


def moments(shown: Sequence[tuple[float, Picture]], number: int = MOMENTS) -> list[Picture]:
    """So many, evenly over the time while it ran."""
    if not shown:
        return []
    last_s = shown[-1][0]
    wanted = [last_s * at / number for at in range(1, number)]
    return [next(picture for seconds, picture in shown if seconds >= each) for each in wanted]


def cut(picture: Picture) -> Picture:
    """Without what is set up before, what is said after, and the flow that is run then."""
    lines: list[tuple[Stretch, ...]] = []
    for line, text in zip(picture, text_of(picture), strict=True):
        if text.startswith(NOT_SHOWN[1]) or (any(lines) and text.startswith(NOT_SHOWN[0])):
            break
        if not text.startswith(NOT_SHOWN[0]):
            lines.append(line)
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def as_svg(shown: Sequence[Picture], end: Picture) -> str:
    slots_s = len(shown) * MOMENT_S
    whole_s = slots_s + END_S
    height = 2 * EDGE + TALL * (len(end) + 2)
    width = 2 * EDGE + WIDE * COLUMNS
    frames = "".join(
        f'<g class="m" style="animation-delay:{at * MOMENT_S:.1f}s">{_lines(picture)}</g>'
        for at, picture in enumerate(shown)
    )
    moving = (
        f".m{{visibility:hidden;animation:m {whole_s:g}s step-end infinite}}"
        f"@keyframes m{{0%{{visibility:visible}}{100 * MOMENT_S / whole_s:.2f}%{{visibility:hidden}}}}"
        f".e{{animation:e {whole_s:g}s step-end infinite}}"
        f"@keyframes e{{0%{{visibility:hidden}}{100 * slots_s / whole_s:.2f}%{{visibility:visible}}}}"
        "@media(prefers-reduced-motion:reduce){.m,.e{animation:none}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" height="{height}" '
        f'role="img" aria-label="What ./dev run shows"><style>{_STYLE}{moving if shown else ""}</style>'
        f'<rect class="back" width="100%" height="100%" rx="8"/>'
        f'<text x="{EDGE}" y="{EDGE + 13}"><tspan class="green bold">{html.escape(PROMPT[:1])}</tspan>'
        f'{html.escape(PROMPT[1:])}</text>{frames}<g class="e">{_lines(end)}</g></svg>\n'
    )


def _lines(picture: Picture) -> str:
    return "".join(
        _stretch(stretch.text, EDGE + WIDE * stretch.column, EDGE + TALL * row, stretch.style)
        for row, line in enumerate(picture, start=2)
        for stretch in line
    )


def _stretch(text: str, x: float, y: int, style: str) -> str:
    """A bar's blocks are drawn: not every font has them in the width of its letters."""
    full, empty = text.count("█"), text.count("░")
    bar = "".join(
        f'<rect class="{kind}" x="{x + WIDE * before:g}" y="{y + 3}" width="{WIDE * count:g}" height="11"/>'
        for kind, before, count in (("full", 0, full), ("empty", full, empty))
        if count
    )
    if full + empty:
        rest = text[full + empty :]
        text, x = rest.lstrip(), x + WIDE * (full + empty + len(rest) - len(rest.lstrip()))
    if not text:
        return bar
    named = f' class="{style}"' if style else ""
    size = f' textLength="{WIDE * len(text):g}"'
    return f'{bar}<text x="{x:g}" y="{y + 13}"{size}{named}>{html.escape(text, quote=False)}</text>'


def main(arguments: Sequence[str]) -> int:
    shown = list(record([sys.executable, "dev", "run", *arguments]))
    end = cut(shown[-1][1])
    running = [(seconds, cut(picture)) for seconds, picture in shown]
    running = [each for each in running if each[1] and text_of(each[1])[-1].startswith("time")]
    PICTURE.write_text(as_svg(moments(running), end), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
