"""What the tests of producers share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def producers_page() -> str:
    page = Path(__file__).parents[2] / "docs" / "producers.md"
    return page.read_text(encoding="utf-8")
