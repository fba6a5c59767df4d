"""Values that stand elsewhere: `${env:...}`, `${file:...}`, `${dir:...}`, as Kafka's config providers have them."""

import re
from pathlib import Path

import pytest

from oncelog.references import name_in, properties, resolved
from oncelog.server.settings_reading import read_settings
from oncelog.settings import SettingsError


def test_each_place_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("# a comment\nkey.password = hunter2\nother:x\n")
    (tmp_path / "token").write_text("abc\ndef\n")
    assert resolved("a", "${env:PW}", {"PW": "1"}) == "1"
    assert resolved("a", f"${{file:{tmp_path}/file:key.password}}") == "hunter2"
    assert resolved("a", f"${{dir:{tmp_path}:token}}") == "abc\ndef\n"
    assert resolved("a", "User:${env:A};User:${env:B}", {"A": "a", "B": "b"}) == "User:a;User:b"


@pytest.mark.parametrize("text", ["plain", "$1@$2", "${}", "${x}", "RULE:a{2}/$1/", ""])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert resolved("a", text, {}) == text


def test_what_is_read_is_not_looked_into_again() -> None:
    assert resolved("a", "${env:A}", {"A": "${env:B}", "B": "b"}) == "${env:B}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${env:NONE}", "the environment has no such variable"),
        ("${env:a:b}", "the environment has no such variable"),
        ("${vault:a:b}", "expected ${env:NAME}"),
        ("${file:/none:key}", "/none cannot be read: No such file"),
        ("${file:key}", "expected ${file:/path:key}"),
        ("${dir:/tmp:../x}", "expected a file of that folder"),
        ("${dir:/none:x}", "/none/x cannot be read"),
    ],
)
def test_what_is_not_there_is_said(text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(told)):
        resolved("ssl.key.password", text, {})


def test_a_file_without_the_line_is_told_without_its_contents(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("password=hunter2\n")
    with pytest.raises(SettingsError, match="the file has no line key=") as refused:
        resolved("a", f"${{file:{tmp_path}/file:key}}")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("contents", [b"\xff\xfe", b"x" * (2**20 + 1)])
def test_a_file_has_bounds(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(contents)
    with pytest.raises(SettingsError):
        resolved("a", f"${{dir:{tmp_path}:file}}")


def test_the_servers_settings_take_them() -> None:
    settings = read_settings(["ssl.key.password=${env:PW}", "num.partitions=${env:N}"], {"PW": "x", "N": "3"})
    assert settings.ssl_key_password == "x"
    assert settings.num_partitions == 3


def test_all_that_are_missing_are_said_at_once() -> None:
    with pytest.raises(SettingsError, match=r"A[\s\S]*B"):
        read_settings(["ssl.key.password=${env:A}", "num.partitions=${env:B}"], {})


def test_two_halves_of_a_letter_are_one_as_java_writes_it() -> None:
    assert dict(properties([r"password=\uD83D\uDE00\u00e9", r"half=\uD83D"])) == {"password": "😀é", "half": "\ud83d"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a.b:hunter2", "a.b"), ("a.b hunter2", "a.b"), ("=hunter2", "..."), (":hunter2", "..."), ("a", "a")],
)
def test_an_error_shows_no_more_of_a_setting_than_its_name(text: str, shown: str) -> None:
    assert name_in(text) == shown
