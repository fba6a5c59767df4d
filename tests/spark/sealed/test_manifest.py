"""What lies in a path: read back as it was written, told apart from other things, removed when nobody needs it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.sealed.manifest import (
    OWNER,
    Manifest,
    Owner,
    SealedError,
    SealedFile,
    folder_name,
    is_foreign,
    manifest_name,
    outdated,
)

A, B, C = "a" * 32, "b" * 32, "c" * 32
MANIFEST = Manifest(
    query="c76edc99-7142-4100-ab18-bed43f424ac9",
    batch=7,
    folder=folder_name(7, A),
    layout="arrow",
    files=(SealedFile(name="00000-x.arrow", rows=3, size_bytes=700), SealedFile(name="ä.arrow", rows=1, size_bytes=1)),
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    data = MANIFEST.to_bytes()
    assert Manifest.from_bytes(data, "7.json") == MANIFEST
    assert MANIFEST.rows == 4
    assert data.isascii() and data.endswith(b"\n")
    assert json.loads(data)["files"][0] == {"name": "00000-x.arrow", "rows": 3, "size_bytes": 700}


def test_an_owner_is_read_as_it_was_written() -> None:
    owner = Owner(query="q", sink="s")
    assert Owner.from_bytes(owner.to_bytes(), OWNER) == owner


@given(at=st.integers(0, len(MANIFEST.to_bytes()) - 1), byte=st.integers(0, 255))
def test_no_changed_byte_goes_unnoticed(at: int, byte: int) -> None:
    data = bytearray(MANIFEST.to_bytes())
    data[at] = byte
    try:
        found = Manifest.from_bytes(bytes(data), "7.json")
    except SealedError:
        return
    assert found == MANIFEST


@pytest.mark.parametrize("size", [0, 1, 40, len(MANIFEST.to_bytes()) - 2])
def test_a_cut_manifest_is_damaged(size: int) -> None:
    with pytest.raises(SealedError, match=r"7\.json is damaged: it is not whole"):
        Manifest.from_bytes(MANIFEST.to_bytes()[:size], "7.json")


def test_a_manifest_of_a_newer_version_is_told_as_that() -> None:
    newer = _rewritten(b'"version":1', b'"version":2')
    with pytest.raises(SealedError, match="is of version 2, and this oncelog reads version 1"):
        Manifest.from_bytes(newer, "7.json")


def test_one_kind_of_file_is_not_taken_for_the_other() -> None:
    with pytest.raises(SealedError, match="it is a 'oncelog sealed sink', not a 'oncelog sealed batch'"):
        Manifest.from_bytes(Owner(query="q", sink="s").to_bytes(), "7.json")


@pytest.mark.parametrize("folder", ["../elsewhere", "7", f"7-{A}/..", ""])
def test_a_manifest_names_folders_of_its_path_alone(folder: str) -> None:
    with pytest.raises(SealedError, match="it names the folder"):
        Manifest.from_bytes(_rewritten(MANIFEST.folder.encode(), folder.encode()), "7.json")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"rows":3', b'"rows":"3"'), (b'"rows":3', b'"rows":-3'), (b'"name":"00000-x.arrow"', b'"name":"../x"')],
)
def test_a_file_of_a_manifest_is_a_name_and_numbers(old: bytes, new: bytes) -> None:
    with pytest.raises(SealedError, match="damaged"):
        Manifest.from_bytes(_rewritten(old, new), "7.json")


def _rewritten(old: bytes, new: bytes) -> bytes:
    """With a checksum that fits, as a version of ours might have written it."""
    import hashlib

    values = json.loads(MANIFEST.to_bytes().replace(old, new))
    del values["checksum"]
    text = json.dumps(values, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f'{text[:-1]},"checksum":"{checksum}"}}\n'.encode()


@pytest.mark.parametrize(
    ("name", "is_other"),
    [
        (OWNER, False),
        (manifest_name(0), False),
        (folder_name(12, B), False),
        (".12.json.0123abcd", False),
        (".query.json.0123abcd", False),
        ("commits", True),
        ("0", True),
        ("12-b", True),
        ("x.json", True),
        (f"12-{B}.bak", True),
    ],
)
def test_what_is_not_of_a_sealed_sink_is_known(name: str, is_other: bool) -> None:
    assert is_foreign(name) is is_other


NAMES = [
    OWNER,
    *(manifest_name(batch) for batch in (3, 8, 9, 10)),
    *(folder_name(batch, unique) for batch in (3, 8, 9, 10, 11) for unique in (A, B)),
    ".8.json.1",
    ".9.json.1",
    ".10.json.1",
    ".query.json.1",
    "what.else",
]


def test_what_nobody_needs_is_removed_manifests_first() -> None:
    """A driver that lags behind must meet a missing manifest, which is told well, not one whose files are gone."""
    found = outdated(NAMES, 10, {9: folder_name(9, A), 10: folder_name(10, B)})
    assert found[:2] == ["3.json", "8.json"]
    assert sorted(found[2:]) == sorted(
        [
            *(folder_name(batch, unique) for batch in (3, 8) for unique in (A, B)),
            folder_name(9, B),
            folder_name(10, A),
            ".8.json.1",
            ".query.json.1",
        ]
    )


def test_a_folder_that_may_be_a_living_drivers_stays() -> None:
    """Without a manifest of the batch, whoever writes a folder of it may still be the first."""
    found = outdated(NAMES, 10, {9: folder_name(9, A)})
    assert folder_name(10, A) not in found and folder_name(10, B) not in found


def test_nothing_is_removed_when_the_first_batch_begins() -> None:
    assert outdated([OWNER, folder_name(0, A)], 0, {}) == []
