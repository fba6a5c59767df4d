"""What the documents say to type is typed here, and their links lead somewhere."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.chaos.process_tree import name_of
from tests.repo.documents import BlockFailed, PageRun, blocks, blocks_of, lines_missing, pages
from tests.repo.tree import ROOT, project_files, read
from tests.waiting import until

SHORT_PAGE = "docs/consumers.md"
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
PAGES_WITH_CODE = [page for page in pages() if any(block.is_run for block in blocks(page))]
FROM = re.compile(r"from (examples/\S+\.py)$")
EXAMPLE = """
```bash
echo hello
```
```output
hel…
```
<!-- not run: needs two machines -->
```bash
exit 1
```
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [name if name == SHORT_PAGE else pytest.param(name, marks=pytest.mark.thorough) for name in PAGES_WITH_CODE]
)
def test_the_blocks_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    with PageRun(page, tmp_path) as page_run:
        for block in blocks(page):
            page_run.run(block)


def test_a_block_that_is_not_run_says_why() -> None:
    silent = [
        block.where for page in pages() for block in blocks(page) if block.not_run is not None and not block.not_run
    ]
    assert not silent


def test_what_a_page_shows_of_an_example_stands_in_it() -> None:
    shown = [
        (block, taken[1]) for page in pages() for block in blocks(page) if (taken := FROM.match(block.not_run or ""))
    ]
    assert shown
    assert not [block.where for block, example in shown if block.text not in read(example)]


def test_readme_shows_how_to_run_and_to_test() -> None:
    shown = [block.text.strip() for block in blocks("README.md")]
    assert {"./dev run", "./dev test"} <= set(shown)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "./dev test" in read(".ci/run")


def test_the_checker_finds_blocks_output_and_reasons(tmp_path: Path) -> None:
    run, output, left_out = blocks_of("example.md", EXAMPLE)
    assert (run.language, run.text, run.is_run, run.line) == ("bash", "echo hello\n", True, 2)
    assert output.language == "output"
    assert left_out.not_run == "needs two machines"
    with PageRun("example.md", tmp_path) as page_run:
        page_run.run(run)
        page_run.run(output)


def test_the_checker_notices_a_failing_block_and_output_that_never_came(tmp_path: Path) -> None:
    failing, wrong_output = blocks_of("example.md", "```bash\necho sorry; exit 3\n```\n```output\nfine\n```\n")
    with PageRun("example.md", tmp_path) as page_run:
        with pytest.raises(BlockFailed, match=r"exit code 3.*\nsorry"):
            page_run.run(failing)
        with pytest.raises(BlockFailed, match="fine"):
            page_run.run(wrong_output)
    assert lines_missing("a\nb\n", "b\na\n") == ["b"]


RUN_AND_HANG = """
import sys
from pathlib import Path
from tests.repo.documents import PageRun, blocks_of

with PageRun("example.md", Path(sys.argv[1])) as run:
    run.run(blocks_of("example.md", "```bash\\nsleep 600 > said 2>&1 & echo $! > pid\\n```\\n")[0])
    print((run.folder / "pid").read_text(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.thorough) for each in (signal.SIGTERM, signal.SIGINT))],
)
def test_what_a_page_has_started_ends_with_the_run_of_it(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN_AND_HANG, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            pid = int(process.stdout.readline())
            until(lambda: name_of(pid) == b"sleep", "bash to have become what the page starts")
            process.send_signal(number)
            process.wait(60)
        finally:
            process.kill()
    until(lambda: name_of(pid) not in (b"bash", b"sleep"), "what the page has started to end")


@pytest.mark.parametrize("page", [name for name in project_files() if name.endswith(".md")])
def test_links_lead_somewhere(page: str) -> None:
    lost = [target for target in LINK.findall(read(page)) if not _leads_somewhere(page, *target)]
    assert not lost


def _leads_somewhere(page: str, path: str, anchor: str) -> bool:
    target = (ROOT / page).parent / path if path else ROOT / page
    if not target.exists():
        return False
    if not anchor or target.suffix != ".md":
        return True
    headings = re.findall(r"^#+\s+(.*?)\s*$", target.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_decisions_have_numbers_of_their_own_and_are_listed() -> None:
    found = sorted(name for name in project_files() if re.fullmatch(r"docs/decisions/\d{4}-[a-z0-9-]+\.md", name))
    numbers = [Path(name).name[:4] for name in found]
    assert len(set(numbers)) == len(numbers)
    index = read("docs/decisions/README.md")
    assert [name for name in found if f"({Path(name).name})" not in index] == []
    others = [name for name in project_files() if name.startswith("docs/decisions/") and name not in found]
    assert others == ["docs/decisions/README.md"]
