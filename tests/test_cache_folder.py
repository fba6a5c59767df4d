"""Where is kept what can be made anew: in a folder of the user's own, wherever a program runs."""

import os
import stat
from pathlib import Path

import pytest

from oncelog.cache_folder import NoCacheFolder, cache_folder, make_cache_folder


def test_it_is_where_the_user_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == cache_folder("") == tmp_path / "oncelog"
    assert cache_folder("/else/where") == Path("/else/where")


def test_what_depends_on_where_a_program_runs_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoCacheFolder, match="near is not absolute"):
        cache_folder("near")
    monkeypatch.setenv("XDG_CACHE_HOME", "near")
    with pytest.raises(NoCacheFolder, match="near/oncelog is not absolute"):
        cache_folder()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as with neither HOME nor an account
    with pytest.raises(NoCacheFolder, match=r"~/\.cache/oncelog is not absolute"):
        cache_folder()


def test_nobody_else_may_write_into_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_cache_folder(tmp_path / "oncelog")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "oncelog").stat().st_mode) == 0o755
