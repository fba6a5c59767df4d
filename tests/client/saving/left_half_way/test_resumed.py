"""Saved producers of an earlier version are gone on from: nothing is written twice, and a newer save says the same."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import Producer, SavedProducer
from oncelog.embedded import Server
from tests.client.saving.left_half_way.make import KINDS, SAVED, SETTINGS, WRITTEN, started
from tests.client.saving.stored import stored
from tests.client.saving.test_resumed_producer import exactly, feed
from tests.raw import RawConnection

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.gz"))
MORE = 20


@pytest.fixture(scope="module", params=ARCHIVES, ids=[path.name.partition(".")[0] for path in ARCHIVES])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """The server with what was written, and the folder of saved values."""
    folder = tmp_path_factory.mktemp("left")
    with tarfile.open(request.param) as packed:
        packed.extractall(folder, filter="data")
    with Server(data_dir=str(folder / "data"), settings=SETTINGS) as server:
        yield server, folder / "saved"


def properties(kind: str) -> dict[str, int]:
    return {"oncelog.keyless.run": 7} if kind == "keyless" else {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_value_is_read_and_spelled_as_it_was(left: tuple[Server, Path], kind: str) -> None:
    text = (left[1] / f"{kind}.json").read_text()
    assert SavedProducer.from_json(text).to_json() == text


def test_the_kinds_are_what_they_are_called(left: tuple[Server, Path]) -> None:
    values = {kind: SavedProducer.from_json((left[1] / f"{kind}.json").read_text()) for kind in KINDS}
    assert {len(each.spans) for each in values["ended"].topics["ended"].partitions.values()} == {2}
    assert values["kafka"].identities[0].pid >= 1 << 32 and values["kafka"].identities[0].expires_at_ms == -1
    assert values["lease"].identities[0].expires_at_ms > 0
    assert values["keyless"].keyless_run == 7 and values["keyless"].topics["keyless"].keyless_counter > 0


@pytest.mark.parametrize("kind", KINDS)
def test_who_goes_on_repeats_nothing(left: tuple[Server, Path], kind: str) -> None:
    server, values = left
    saved = (values / f"{kind}.json").read_text()
    with RawConnection(server.bootstrap_servers) as raw:
        assert sorted(stored(raw, kind).numbers()) == list(range(WRITTEN))
        producer: Producer = started(server, saved, **properties(kind))
        producer.saved()
        feed(producer, kind, SAVED, WRITTEN + MORE)
        producer.close()
        exactly(stored(raw, kind), WRITTEN + MORE)
