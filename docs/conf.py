"""How Sphinx makes a site of these pages: `./dev docs`. The pages themselves are plain Markdown, as read on GitHub.

Navigation is not written twice: the headings of index.md and the links beneath them are the site's menu.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
VERSION = re.search(r'^__version__ = "(.+)"$', (HERE.parent / "src/oncelog/__init__.py").read_text(), re.MULTILINE)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
PAGE = re.compile(r"^- \[([^\]]+)\]\(((?!\.\.)[^):#]+)\.md\)", re.MULTILINE)

OUTSIDE = re.compile(
    r"\]\((\.\./[^)#]+\.md)\)"
)  # README and the like are no pages of the site: links hand out the file

project = "oncelog"
author = "the oncelog authors"
release = VERSION[1] if VERSION else ""
extensions = ["myst_parser"]
nitpicky = True

# GitHub's names of headings, so that one link is right in both places.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"oncelog {release}"
html_favicon = "img/icon.svg"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def menu_of(index: str) -> str:
    """The hidden tables of contents that Sphinx wants, from what index.md shows."""
    _, *sections = SECTION.split(index)
    trees = []
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        pages = "\n".join(f"{name} <{page}>" for name, page in PAGE.findall(text))
        if pages:
            trees.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n")
    return "\n".join(trees)


def add_menu(app: Sphinx, page: str, content: list[str]) -> None:
    content[0] = OUTSIDE.sub(r"](path:\1)", content[0])
    if page == "index":
        content[0] += "\n" + menu_of(content[0])
    if page == "decisions/README":
        found = sorted(path.stem for path in (HERE / "decisions").glob("[0-9]*.md"))
        content[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(found) + "\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_menu)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
