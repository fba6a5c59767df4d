"""Style as failing tests: see bans.py for what is banned and what to write instead."""

import ast

import pytest

from tests.repo.bans import BANS, Ban
from tests.repo.tree import project_files, read

MOST_LINES = 500
by_name = pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name.replace(" ", "-"))


@by_name
def test_nothing_banned_is_written(ban: Ban) -> None:
    broken = [
        f"{path}:{line}: {ban.name}. Instead: {ban.instead}"
        for path in project_files()
        if ban.applies_to(path)
        for line in ban.hits(read(path))
    ]
    assert not broken, "\n" + "\n".join(broken)


@by_name
def test_every_ban_catches_its_example_and_says_what_to_write_instead(ban: Ban) -> None:
    assert ban.hits(ban.example)
    assert ban.instead


SECRETS = {
    "a key of PEM": "-----BEGIN PRIVATE KEY-----\n" + "MIGHAgEAMB" * 5,
    "one in a text of JSON": r"-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAA" * 5,
    "a signed token": f"eyJ{'h' * 20}.eyJ{'p' * 20}.signature",
    "a key of AWS": "AKIA" + "Q" * 16,
    "a token of GitHub": "ghp_" + "q" * 36,
    "a fine-grained one": "github_pat_" + "q" * 40,
    "a token of GitLab": "glpat-" + "q" * 20,
    "a token of Slack": "xoxb-" + "q" * 20,
    "a key of Google": "AIza" + "q" * 35,
    "a token of PyPI": "pypi-" + "q" * 60,
    "a token of npm": "npm_" + "q" * 36,
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("around", ["{}", "token = '{}'\n", '{{"token": "{}"}}', "TOKEN={}\n"])
def test_the_scan_for_secrets_finds_each_kind_of_them_wherever_it_stands(secret: str, around: str) -> None:
    (scan,) = (ban for ban in BANS if ban.name == "a secret")
    assert scan.hits(around.format(secret))
    assert not scan.hits(around.format(secret[: len(secret) // 3]))


def test_the_scan_for_secrets_reads_every_file_but_its_own() -> None:
    (scan,) = (ban for ban in BANS if ban.name == "a secret")
    assert [path for path in project_files() if not scan.applies_to(path)] == ["tests/repo/bans.py"]


@by_name
def test_every_ban_looks_at_some_file(ban: Ban) -> None:
    assert any(ban.applies_to(path) for path in project_files())


def test_every_module_can_be_read_in_one_sitting() -> None:
    lengths = {path: read(path).count("\n") for path in project_files() if path.endswith(".py") or path == "dev"}
    too_long = [
        f"{path}: {lines} lines; split it by what it does" for path, lines in lengths.items() if lines > MOST_LINES
    ]
    assert not too_long, "\n".join(too_long)


def test_every_module_says_what_it_is_for() -> None:
    sources = [path for path in project_files() if path.endswith(".py") and not path.endswith("__init__.py")]
    silent = [path for path in sources if ast.get_docstring(ast.parse(read(path))) is None]
    assert not silent, f"begin with a docstring that says why the module is there: {silent}"


def test_there_is_no_lock_file_that_names_a_registry() -> None:
    named = [path for path in project_files() if path.endswith(("uv.lock", "poetry.lock", "Pipfile.lock"))]
    assert not named, f"versions are locked in requirements/ by `./dev lock`: remove {named}"
