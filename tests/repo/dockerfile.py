"""A Dockerfile read, and its steps run without Docker: FROM, ARG, ENV, WORKDIR, COPY and RUN, as far as ours goes.

Paths of the image are taken into a folder of this machine: what is written as /opt/oncelog in a step becomes
FOLDER/opt/oncelog. The base image is the Python that runs this.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

STEP_SECONDS = 300
IMAGE_FOLDERS = re.compile(r"(?<![\w.])/(?=(opt|build|var)/?\b)")


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Of the form in brackets, which no shell reads."""
        listed: list[str] = json.loads(self.rest[self.rest.index("[") :])
        return listed


@dataclass(slots=True)
class Stage:
    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def the_only(self, word: str) -> Instruction:
        (found,) = [each for each in self.instructions if each.word == word]
        return found


def stages(text: str) -> list[Stage]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: list[Stage] = []
    for line in filter(str.strip, joined.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name))
        else:
            found[-1].instructions.append(Instruction(word, rest.strip()))
    return found


def let_through(ignore: str, path: str) -> bool:
    """Whether .dockerignore leaves a path to COPY; the last rule that fits it, or a folder above it, counts."""
    is_out = False
    for rule in (line.strip() for line in ignore.splitlines()):
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!").removeprefix("**/")
        parts = path.split("/")
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        tried = [*above, *parts] if "**/" in rule else above
        if any(fnmatch(each, pattern) for each in tried):
            is_out = not rule.startswith("!")
    return not is_out


class Image:
    """The stages that only build; `context` holds what .dockerignore lets through."""

    def __init__(self, folder: Path, context: Path) -> None:
        self.folder = folder
        self._context = context
        self._work = folder
        base = folder / "base"
        subprocess.run([sys.executable, "-m", "venv", base], check=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
        self._env = kept | {"PATH": f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def build(self, stage: Stage, **arguments: str) -> None:
        for each in stage.instructions:
            match each.word:
                case "ARG" | "ENV":
                    self._env |= dict(re.findall(r"(\w+)=(\S+)", each.rest))
                    self._env |= arguments if each.word == "ARG" else {}
                case "WORKDIR":
                    self._work = Path(self.here(each.rest))
                    self._work.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(each.rest.split())
                case "RUN":
                    self._run(each.rest)
                case word:
                    raise AssertionError(f"a stage that builds has {word}")

    def here(self, text: str) -> str:
        return IMAGE_FOLDERS.sub(lambda match: f"{self.folder}/", text)

    def _copy(self, words: list[str]) -> None:
        *sources, target = words
        into = self._work / target
        for name in sources:
            source = self._context / name
            if source.is_dir():
                shutil.copytree(source, into, dirs_exist_ok=True)
            else:
                shutil.copy2(source, into)

    def _run(self, text: str) -> None:
        done = subprocess.run(
            ["sh", "-ec", self.here(text)],
            cwd=self._work,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"RUN {text}\n{done.stdout}{done.stderr}"
