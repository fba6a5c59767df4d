"""A real bash completes a line: what TAB would offer."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import START

# As bash does it on a TAB, but that the words are given instead of typed.
OFFER = """
eval "$(oncelog completion bash)"
COMP_WORDS=({words} {last})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
compopt() {{ printf 'compopt %s %s\\n' "$1" "$2"; }}
_oncelog_completion oncelog
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder with an `oncelog` as an install puts it there."""
    program = tmp_path / "oncelog"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(START)} "$@"\n')
    program.chmod(0o755)
    return tmp_path


def offered(bin_folder: Path, words: str, last: str = "") -> list[str]:
    script = OFFER.format(words=words, last=shlex.quote(last))
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-eu", "-c", script], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n")[:-1]


def test_commands_are_offered(bin_folder: Path) -> None:
    assert offered(bin_folder, "oncelog", "prod") == ["produce", "producers"]
    assert {"serve", "consume", "doctor", "completion"} <= set(offered(bin_folder, "oncelog"))


def test_commands_of_commands_are_offered(bin_folder: Path) -> None:
    assert offered(bin_folder, "oncelog topics") == ["acls", "alter", "create", "delete", "describe", "list"]
    assert offered(bin_folder, "oncelog groups", "des") == ["describe"]


def test_options_and_what_they_may_say_are_offered(bin_folder: Path) -> None:
    assert offered(bin_folder, "oncelog serve", "--met") == ["--metrics"]
    assert offered(bin_folder, "oncelog leases --format", "") == ["table", "json", "yaml"]
    assert offered(bin_folder, "oncelog completion", "") == ["bash", "zsh", "fish"]


def test_files_are_left_to_the_shell(bin_folder: Path) -> None:
    assert offered(bin_folder, "oncelog serve --config", "s")[0] == "compopt -o default"


def test_a_wrong_word_offers_nothing_and_says_nothing(bin_folder: Path) -> None:
    offered(bin_folder, "oncelog nonsense", "x")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_that_asks_the_installed_command(bin_folder: Path, shell: str) -> None:
    program = [str(bin_folder / "oncelog"), "completion", shell]
    said = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"_ONCELOG_COMPLETE={shell}_complete" in said
