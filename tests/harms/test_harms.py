"""Harm to data folders is never silent. The long version: ./dev harm."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.harms import campaign, harming, story
from tests.harms.judging import Read, wrong_with
from tests.harms.story import KEYED, PLAIN, Ledger
from tests.peers.oncelog_process import OncelogProcess


def test_what_is_missing_doubled_moved_or_another_is_found() -> None:
    place = (PLAIN, 0)
    values = {0: b"a", 1: b"b", 2: b"c"}
    ledger = Ledger({place: values}, {place: set(values.values())})

    def wrong(values: dict[int, bytes], order: list[int] | None = None) -> list[str]:
        return list(wrong_with(Read(values, order or list(values)), ledger, place))

    assert wrong(values) == []
    assert wrong({0: b"a", 2: b"c"}) == ["1 of 3 are missing, such as [1]"]
    assert "2 are others, such as [1, 2]" in wrong({0: b"a", 1: b"c", 2: b"b"})
    assert "values stand twice" in wrong({**values, 3: b"c"})
    assert wrong(values, [0, 1, 1, 2]) == ["offsets come again"]
    assert wrong({**values, 3: b"d"}) == ["1 were never sent, such as [3]"]


def test_of_a_compacted_topic_the_newest_of_each_key_must_be_there() -> None:
    place = (KEYED, 0)
    values = {0: b"a", 1: b"b", 2: b"c"}
    ledger = Ledger({place: values}, {place: set(values.values())}, keys={0: b"k", 1: b"l", 2: b"k"})

    def wrong(*offsets: int) -> list[str]:
        return list(wrong_with(Read({each: values[each] for each in offsets}, [*offsets]), ledger, place))

    assert wrong(1, 2) == wrong(0, 1, 2) == []
    assert wrong(0, 1) == ["the newest of 1 keys are missing, such as [2]"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_no_harm_to_a_data_folder_is_silent(seed: int) -> None:
    command = [sys.executable, "-m", "tests.harms", "--folders", "1", "--seed", str(seed), "--minutes", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n| all | " in done.stdout


@pytest.mark.thorough
def test_without_its_notes_a_log_that_is_cut_short_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are no forks: of this process, which has threads, there should be none."""

    def serving(folder: Path, *, settings: dict[str, str], before: object = None) -> OncelogProcess:
        return OncelogProcess(folder, settings=settings)

    for module in (story, campaign):
        monkeypatch.setattr(module, "ForkedOncelog", serving)
    written = story.told(tmp_path / "story", Random(1), ending="killed", flush="os")

    def cut(data: Path, chance: Random) -> str:
        log = harming.logs(data / f"{PLAIN}-0")[-1]
        known = [*log.parent.glob("written"), *log.parent.glob("flushed"), *log.parent.glob("*.producers")]
        for each in known:
            each.unlink()
        log.write_bytes(b"")
        return log.name

    monkeypatch.setitem(harming.HARMS, "cut", cut)
    assert campaign.judged(written, tmp_path / "harmed", "cut", Random(1)).result == "SILENT"
