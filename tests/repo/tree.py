"""The project's own files, as the tests of this folder look at them."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def project_files() -> tuple[str, ...]:
    """Everything that is or could be committed, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return tuple(sorted(name for name in set(listed) if (ROOT / name).is_file()))


def read(name: str) -> str:
    """A file's text; samples of bytes come out as something that no rule about text applies to."""
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")
