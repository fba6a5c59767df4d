"""What this project does not write, and what it writes instead.

A ban without a named replacement only annoys, so each has one; and each carries an example that it must catch, so that
none of them can go blind. Places are `fnmatch` patterns over paths (`*` crosses folders).
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatch

PYTHON = ("*.py", "dev")
SOURCE = ("src/*.py",)
TESTS = ("tests/*.py",)
EVERYTHING = ("*",)
THIS_FILE = "tests/repo/bans.py"


@dataclass(frozen=True, kw_only=True)
class Ban:
    name: str
    pattern: str
    instead: str
    example: str
    where: tuple[str, ...]
    but_not: tuple[str, ...] = ()

    def applies_to(self, path: str) -> bool:
        listed = any(fnmatch(path, place) for place in self.where)
        return listed and path != THIS_FILE and not any(fnmatch(path, place) for place in self.but_not)

    def hits(self, text: str) -> list[int]:
        """Numbers of the lines where it is broken."""
        found = re.finditer(self.pattern, text, re.MULTILINE)
        return [text.count("\n", 0, match.start()) + 1 for match in found]


BANS = [
    Ban(
        name="reading a clock",
        pattern=r"\btime\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns)\b"
        r"|\b(datetime|date)\.(now|utcnow|today)\(",
        instead="take a `Now` as an argument; where time passes in between, a `Clock` (oncelog/clock.py)",
        example="deadline = time.monotonic() + 5",
        where=SOURCE,
        but_not=("src/oncelog/clock.py",),
    ),
    Ban(
        name="sleeping",
        pattern=r"\btime\.sleep\(",
        instead="asyncio's timers in the server, a thread's Event.wait elsewhere: both can be ended early",
        example="time.sleep(1)",
        where=SOURCE,
    ),
    Ban(
        name="sleeping in a test",
        pattern=r"\b(time|asyncio)\.sleep\((?!\s*0\s*\))",
        instead="turn a ManualClock, await the event, or ask the other process by tests/waiting.py",
        example="time.sleep(0.5)",
        where=("tests/*test_*.py", "tests/*conftest.py"),
    ),
    Ban(
        name="select()",
        pattern=r"\bselect\.select\(",
        instead="selectors.DefaultSelector: select() fails from descriptor 1,024 on",
        example="select.select([process.stdout], [], [], 1)",
        where=PYTHON,
    ),
    Ban(
        name="print",
        pattern=r"(?<![\w.])print\(",
        instead="click.echo in cli/, `logging` elsewhere",
        example="    print(answer)",
        where=SOURCE,
    ),
    Ban(
        name="an unnamed ignore",
        pattern=r"#\s*(type:\s*ignore(?!\[)|noqa(?!:))",
        instead="name what is ignored: `# type: ignore[arg-type]`, `# noqa: B008`",
        example="x = f()  # type: ignore",
        where=PYTHON,
    ),
    Ban(
        name="swallowing every error",
        pattern=r"except(\s+(Exception|BaseException)(\s+as\s+\w+)?)?:\s*(#[^\n]*)?\n\s*(pass|\.\.\.|continue)\b",
        instead="catch the error that you expect; log what you did not",
        example="try:\n    f()\nexcept Exception:\n    pass\n",
        where=PYTHON,
    ),
    Ban(
        name="a bare except",
        pattern=r"^\s*except\s*:",
        instead="`except BaseException:` with a `raise` at its end, or the error that you expect",
        example="    except:",
        where=PYTHON,
    ),
    Ban(
        name="unfinished work",
        pattern=r"\b(TODO|FIXME|XXX|HACK)\b|\bNotImplementedError\b",
        instead="finish it, or name it under known gaps in docs/ARCHITECTURE.md; abstract doors are Protocols",
        example="# TODO: the other half",
        where=(*PYTHON, "*.sh", "Makefile"),
    ),
    Ban(
        name="a failure that is waved through",
        pattern=r"\|\|\s*(true|:)(\s|$)",
        instead="let it fail, or test for the one condition that may be absent",
        example="rm thing || true",
        where=("*.sh", "Makefile", ".ci/*", "*.md"),
    ),
    Ban(
        name="a test that is left out",
        pattern=r"pytest\.(skip|xfail)\(|mark\.(skip|skipif|xfail)\b|unittest\.skip",
        instead="make it pass, or remove it; what a machine may lack goes through a `need_...`, which fails in CI",
        example="@pytest.mark.skip(reason='later')",
        where=TESTS,
        but_not=("tests/peers/jars.py", "tests/soak/small_disk.py"),
    ),
    Ban(
        name="chance without a seed",
        pattern=r"^import random$(?=[\s\S]*\brandom\.(random|rand\w+|choices?|shuffle|sample|uniform)\()|\bRandom\(\)",
        instead="random.Random(seed), with the seed in the failure's message",
        example="import random\nn = random.randint(0, 9)",
        where=(*TESTS, "bench/*.py"),
    ),
    Ban(
        name="a path of one machine",
        pattern=r"(?<![\w.}/])/(root|work|home/[a-z]+|Users/[A-Za-z]+)/",
        instead="a path relative to the project, `tmp_path`, or the user's cache folder by XDG_CACHE_HOME",
        example="DATA = '/root/data'",
        where=EVERYTHING,
    ),
    Ban(
        name="a fixed temporary folder",
        pattern=r"""\b(open|Path|mkdir|rmtree|listdir)\(\s*f?["']/tmp/""",
        instead="pytest's tmp_path, or tempfile",
        example="open('/tmp/x')",
        where=PYTHON,
    ),
    Ban(
        name="a secret",
        pattern=r"-----BEGIN [A-Z ]*PRIVATE KEY-----(\s|\\[nr])+[A-Za-z0-9+/]{40}|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\."
        r"|\b(A[KS]IA[0-9A-Z]{16}|gh[oprsu]_[A-Za-z0-9]{36}|github_pat_\w{40}|glpat-[\w-]{20}|xox[abprs]-[\w-]{20})"
        r"|\b(AIza[\w-]{35}|pypi-[\w-]{60}|npm_[A-Za-z0-9]{36}|sk-[A-Za-z0-9]{32})",
        instead="make keys, tokens and passwords where they are needed, as tests/server/jwks.py does",
        example="-----BEGIN EC PRIVATE KEY-----\n" + "MHcCAQEEIA" * 5,
        where=EVERYTHING,
    ),
    Ban(
        name="the address of a package registry",
        pattern=r"--(extra-)?index-url|--find-links|https?://(?!maven\.apache\.org/POM/|www\.w3\.org/)",
        instead="the package's name and version; where it comes from is the business of each machine's own settings",
        example="--index-url https://packages.example/simple",
        where=("requirements/*", "pyproject.toml", "dev", ".ci/*", "Makefile", "*.xml"),
    ),
    Ban(
        name="a heavy import on the way to serving",
        pattern=r"^(import|from)\s+(numpy|numba|pyarrow|llvmlite)\b",
        instead="put it into the columns of records/ (extra [columns]), which nothing that serves imports",
        example="import numpy as np",
        where=SOURCE,
        but_not=(
            "src/oncelog/records/*column*.py",
            "src/oncelog/records/*arrow*.py",
            "src/oncelog/records/*_loops.py",
            "src/oncelog/records/loop_objects.py",
            "src/oncelog/slots/*_columns.py",
            "src/oncelog/client/*",
            "src/oncelog/spark/*",
            "src/oncelog/flow/*",
            "src/oncelog/runner/storing/*",
            "src/oncelog/chaos/*",
        ),
    ),
    Ban(
        name="the disk beside the seam",
        pattern=r"^\s*(import|from)\s+(os|pathlib|shutil|tempfile|mmap|glob)\b|(?<![\w.])(?<!def )open\(",
        instead="ask the `Disk` that was passed in (log/disk.py), so that the tests' disk can fail and tear",
        example="import os",
        where=("src/oncelog/log/*.py",),
        but_not=("src/oncelog/log/disk.py",),
    ),
    Ban(
        name="words that a stranger stumbles over",
        pattern=r"(?i)\b(whoever|tells? of|so many)\b|nobody thought of",
        instead="a noun that says who or how many: the client, the broker, `count` records, at most this many",
        example="Whoever asks is told so many of them.",
        where=("src/*.py", "examples/*.py", "docs/*.md", "README.md", "CONTRIBUTING.md"),
        but_not=("docs/decisions/*",),
    ),
    Ban(
        name="a docstring that begins with a clause",
        pattern=r'"""(What|Who|Whose|How|Where|Which|Why) (?![^"\n]*\?)',
        instead='the thing or the act: "The bytes that a connection receives", "Send everything now"',
        example='"""What a connection receives."""',
        where=SOURCE,
    ),
]
