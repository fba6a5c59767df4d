"""The files in a sealed sink's path: `query.json`, a manifest for each batch, a folder for each attempt to write one.

Pure: bytes and names in, bytes and names out. A manifest says which files are a batch, in which order. It is published
once and never changed, so every run that sends the batch later sends the same rows from the same lanes.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from oncelog.spark.sink.errors import SinkRefused

FORMAT: Final = "oncelog sealed batch"
OWNER_FORMAT: Final = "oncelog sealed sink"
VERSION: Final = 1
OWNER: Final = "query.json"
MAX_BYTES: Final = 64 << 20

_MANIFEST: Final = re.compile(r"(\d+)\.json")
_FOLDER: Final = re.compile(r"(\d+)-[0-9a-f]{32}")
# Files that a file manager leaves when it is killed between writing and renaming.
_UNFINISHED: Final = re.compile(r"\.(\d+|query)\.json\..+")


class SealedError(SinkRefused):
    """A sealed sink that must not go on; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    name: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of the path."""

    query: str
    sink: str

    def to_bytes(self) -> bytes:
        return _to_bytes({"format": OWNER_FORMAT, "version": VERSION, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Owner":
        values = _from_bytes(data, OWNER_FORMAT, where)
        return cls(query=_text(values, "query", where), sink=_text(values, "sink", where))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Lane i of the batch sends `files[i]`. Files without rows are not in it, so a batch may have none."""

    query: str
    batch: int
    folder: str
    layout: str
    files: tuple[SealedFile, ...]
    planned: str = ""  # what tells the plan of the batch from another one; "" where it is not known

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    def to_bytes(self) -> bytes:
        return _to_bytes({"format": FORMAT, "version": VERSION, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Manifest":
        values = _from_bytes(data, FORMAT, where)
        try:
            files = tuple(_file(each) for each in values["files"])
            manifest = cls(
                query=_text(values, "query", where),
                batch=int(values["batch"]),
                folder=_text(values, "folder", where),
                layout=_text(values, "layout", where),
                files=files,
                planned=str(values.get("planned", "")),  # earlier versions did not write it
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(where, repr(error)) from error
        if not _FOLDER.fullmatch(manifest.folder):
            raise _damaged(where, f"it names the folder {manifest.folder!r}")
        return manifest


def manifest_name(batch: int) -> str:
    return f"{batch}.json"


def folder_name(batch: int, unique: str) -> str:
    name = f"{batch}-{unique}"
    assert _FOLDER.fullmatch(name), name
    return name


def is_foreign(name: str) -> bool:
    """Whether this is a file of no sealed sink: a path with such files in it is not taken over."""
    return name != OWNER and not any(kind.fullmatch(name) for kind in (_MANIFEST, _FOLDER, _UNFINISHED))


def outdated(names: Iterable[str], batch: int, published: Mapping[int, str]) -> list[str]:
    """Files that are not needed any more when `batch` begins, in the order in which they are to be removed.

    `published` has the folder of each batch that has a manifest. A folder of this batch without one may be a living
    driver's, which is about to publish it, so it stays until there is a manifest; from then on nobody else's counts.
    A driver that asks for files older than the batch before is refused in any case.
    """
    manifests, rest = [], []
    for name in sorted(names):
        if found := _MANIFEST.fullmatch(name):
            if int(found[1]) < batch - 1:
                manifests.append(name)
        elif found := _FOLDER.fullmatch(name):
            of = int(found[1])
            if of < batch - 1 or published.get(of, name) != name:
                rest.append(name)
        elif (found := _UNFINISHED.fullmatch(name)) and (found[1] == "query" or int(found[1]) < batch - 1):
            rest.append(name)
    return manifests + rest


def _to_bytes(values: dict[str, Any]) -> bytes:
    text = json.dumps(values, separators=(",", ":"))
    return f'{text[:-1]},"checksum":"{_checksum(text)}"}}\n'.encode()


def _from_bytes(data: bytes, wanted: str, where: str) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(data)
        checksum = values.pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(where, "it is not whole") from error
    if checksum != _checksum(json.dumps(values, separators=(",", ":"))):
        raise _damaged(where, "its checksum is another one")
    if values.get("format") != wanted:
        raise _damaged(where, f"it is a {values.get('format')!r}, not a {wanted!r}")
    if values.get("version") != VERSION:
        raise SealedError(
            f"{where} is of version {values.get('version')}, and this oncelog reads version {VERSION}: run the query "
            "with the version of oncelog that wrote it, or a newer one"
        )
    return values


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text(values: Mapping[str, Any], name: str, where: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise _damaged(where, f"its {name!r} is {value!r}")
    return value


def _file(values: Mapping[str, Any]) -> SealedFile:
    file = SealedFile(**values)
    numbers = (file.rows, file.size_bytes)
    if not isinstance(file.name, str) or "/" in file.name or any(type(each) is not int or each < 1 for each in numbers):
        raise ValueError(f"no file: {dict(values)}")
    return file


def _damaged(where: str, why: str) -> SealedError:
    return SealedError(
        f"{where} is damaged: {why}. Nothing more is written, because nobody can tell which rows were sent. Bring the "
        "file back from a backup; without one, compare the topic with the input by hand before the query goes on"
    )
