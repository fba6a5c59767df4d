"""A fixed hash seed: the order of a set, and hash(), are to be the same in each process that works for a flow."""

import os
import sys
from pathlib import Path
from typing import Final

SEED: Final = "PYTHONHASHSEED"


def pin_hashes() -> None:
    """This process begins again under a fixed seed, as Spark begins its Python workers. Within another program, and
    where somebody has chosen a seed, it stays as it is."""
    if os.environ.get(SEED, "random") == "random" and _is_the_command(Path(sys.argv[0])):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, SEED: "0"})


def _is_the_command(program: Path) -> bool:
    return program.name == "oncelog" or program.parts[-2:] == ("oncelog", "__main__.py")
