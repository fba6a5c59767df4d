"""The documentation builds without a warning, works offline, and every link within it leads somewhere."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.repo.tree import ROOT, project_files

LOADED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src", "object": "data"}


class Page(HTMLParser):
    """Where a page points to, what it loads, and what can be pointed to within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {"", "#"}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", str(folder / "read"), "docs", str(folder / "html")], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


@pytest.mark.thorough
def test_every_document_is_a_page_of_the_site_and_in_its_menu(site: Path, pages: dict[Path, Page]) -> None:
    wanted = [name for name in project_files() if name.startswith("docs/") and name.endswith(".md")]
    built = {path.relative_to(site).with_suffix(".md").as_posix() for path in pages}
    assert {name.removeprefix("docs/") for name in wanted} <= built
    reached = {_target(site / "index.html", link)[0] for link in pages[site / "index.html"].links}
    reached |= {
        _target(site / "decisions/README.html", link)[0] for link in pages[site / "decisions/README.html"].links
    }
    assert {site / Path(name.removeprefix("docs/")).with_suffix(".html") for name in wanted} <= reached


@pytest.mark.thorough
def test_every_link_and_anchor_of_the_site_leads_somewhere(pages: dict[Path, Page]) -> None:
    lost = [
        f"{path.name}: {link}" for path, page in pages.items() for link in page.links if _is_lost(path, link, pages)
    ]
    assert lost == []


def test_a_lost_page_and_a_lost_anchor_are_seen(tmp_path: Path) -> None:
    here, there = tmp_path / "here.html", tmp_path / "there.html"
    pages = {here: Page("<p>"), there: Page('<h2 id="part">')}
    assert not any(_is_lost(here, link, pages) for link in ("there.html", "there.html#part", "#", "https://x.example/"))
    assert all(_is_lost(here, link, pages) for link in ("there.html#whole", "nowhere.html", "#part"))


@pytest.mark.thorough
def test_the_site_loads_nothing_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loads = [(path, each) for path, page in pages.items() for each in page.loads]
    assert loads
    assert [each for path, each in loads if not _target(path, each)[0].is_file()] == []
    styles = [path for path in site.rglob("*.css") if "url(http" in path.read_text() or "@import" in path.read_text()]
    assert styles == []


def _is_lost(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    if urlsplit(link).scheme:
        return False  # `./dev docs links` asks those
    target, anchor = _target(path, link)
    if target in pages:
        return anchor not in pages[target].anchors
    return not target.is_file()


def _target(path: Path, link: str) -> tuple[Path, str]:
    parts = urlsplit(link)
    return (path.parent / unquote(parts.path)).resolve() if parts.path else path, unquote(parts.fragment)
