"""What is done to a data folder behind its server's back. Each kind is a function that answers what it did."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from oncelog.records.header import headers

Harm = Callable[[Path, Random], str]
HARMS: dict[str, Harm] = {}
MOST_FLIPS = 3


def harm(function: Harm) -> Harm:
    HARMS[function.__name__] = function
    return function


def files(data: Path, ending: str = "") -> list[Path]:
    found = [each for each in data.rglob(f"*{ending}") if each.is_file() and not each.is_symlink()]
    return sorted(each for each in found if each.name != ".lock")


def logs(data: Path) -> list[Path]:
    return [each for each in files(data, ".log") if each.stat().st_size] or files(data, ".log")


def chosen(data: Path, chance: Random) -> Path:
    """A log, more often than not."""
    return chance.choice(logs(data) if chance.random() < 0.6 else files(data))


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def replace(path: Path, content: bytes | bytearray) -> None:
    path.write_bytes(content)


@harm
def truncated(data: Path, chance: Random) -> str:
    path = chosen(data, chance)
    size_bytes = path.stat().st_size
    kept = chance.randint(0, max(size_bytes - 1, 0))
    os.truncate(path, kept)
    return f"{named(path)} to {kept} of {size_bytes}"


@harm
def truncated_between_batches(data: Path, chance: Random) -> str:
    path = chance.choice(logs(data))
    content = path.read_bytes()
    ends = [at for at, _ in headers(content)]
    kept = chance.choice(ends or [0])
    os.truncate(path, kept)
    return f"{named(path)} to {kept} of {len(content)}"


@harm
def emptied(data: Path, chance: Random) -> str:
    path = chosen(data, chance)
    size_bytes = path.stat().st_size
    os.truncate(path, 0)
    return f"{named(path)}, {size_bytes} bytes"


@harm
def lengthened(data: Path, chance: Random) -> str:
    path = chosen(data, chance)
    added = bytes(chance.randint(1, 5000)) if chance.random() < 0.5 else chance.randbytes(chance.randint(1, 5000))
    with path.open("ab") as file:
        file.write(added)
    return f"{named(path)} by {len(added)}"


@harm
def zeroed(data: Path, chance: Random) -> str:
    path = chosen(data, chance)
    content = bytearray(path.read_bytes())
    if not content:
        return f"{named(path)}, which is empty"
    start = chance.randrange(len(content))
    count = min(chance.choice((1, 61, 512, 4096, len(content))), len(content) - start)
    content[start : start + count] = bytes(count)
    replace(path, content)
    return f"{named(path)} from {start}, {count} of {len(content)}"


@harm
def flipped(data: Path, chance: Random) -> str:
    path = chosen(data, chance)
    content = bytearray(path.read_bytes())
    places = []
    for _ in range(chance.randint(1, MOST_FLIPS) if content else 0):
        place = chance.randrange(len(content))
        content[place] ^= 1 << chance.randrange(8)
        places.append(place)
    replace(path, content)
    return f"{named(path)} at {places}"


@harm
def removed(data: Path, chance: Random) -> str:
    path = chosen(data, chance)
    gone = [path]
    if path.suffix == ".log" and chance.random() < 0.5:
        gone += [each for each in (path.with_suffix(".index"),) if each.exists()]
    for each in gone:
        each.unlink()
    return " and ".join(map(named, gone))


@harm
def folder_removed(data: Path, chance: Random) -> str:
    folder = chance.choice([each for each in sorted(data.iterdir()) if each.is_dir()])
    shutil.rmtree(folder)
    return folder.name


@harm
def folder_emptied(data: Path, chance: Random) -> str:
    folder = chance.choice([each for each in sorted(data.iterdir()) if each.is_dir()])
    for each in folder.iterdir():
        each.unlink()
    return folder.name


@harm
def renamed(data: Path, chance: Random) -> str:
    path = chosen(data, chance)
    stem = path.name.partition(".")[0]
    name = path.name.replace(stem, f"{int(stem) + chance.choice((-1, 1, 7)):020d}") if stem.isdigit() else "another"
    target = path.with_name(name)
    path.rename(target)
    return f"{named(path)} to {target.name}"


@harm
def swapped(data: Path, chance: Random) -> str:
    """Two files of one kind, of one partition or of two."""
    path = chosen(data, chance)
    alike = [each for each in files(data, path.suffix or path.name) if each != path]
    if not alike:
        return f"{named(path)}, which is the only one"
    other = chance.choice(alike)
    one, two = path.read_bytes(), other.read_bytes()
    replace(path, two)
    replace(other, one)
    return f"{named(path)} with {named(other)}"


@harm
def copied_over(data: Path, chance: Random) -> str:
    path = chosen(data, chance)
    alike = [each for each in files(data, path.suffix or path.name) if each != path]
    if not alike:
        return f"{named(path)}, which is the only one"
    other = chance.choice(alike)
    replace(other, path.read_bytes())
    return f"{named(path)} over {named(other)}"


@harm
def folders_swapped(data: Path, chance: Random) -> str:
    folders = [each for each in sorted(data.iterdir()) if each.is_dir()]
    one, two = chance.sample(folders, 2)
    between = data / "between"
    one.rename(between)
    two.rename(one)
    between.rename(two)
    return f"{one.name} with {two.name}"


def some_batch(path: Path, chance: Random) -> tuple[bytes, int, int] | None:
    """A log, and where one of its batches begins and ends; None where it has none."""
    content = path.read_bytes()
    found = [(at, at + header.size_bytes) for at, header in headers(content)]
    return (content, *chance.choice(found)) if found else None


@harm
def batch_repeated(data: Path, chance: Random) -> str:
    """The last batches of a log stand there twice, or one in the middle."""
    path = chance.choice(logs(data))
    found = some_batch(path, chance)
    if found is None:
        return f"{named(path)}, which is empty"
    content, begin, end = found
    replace(path, content[:end] + content[begin:])
    return f"{named(path)} at {begin}, {end - begin} bytes"


@harm
def batch_taken_out(data: Path, chance: Random) -> str:
    path = chance.choice(logs(data))
    found = some_batch(path, chance)
    if found is None:
        return f"{named(path)}, which is empty"
    content, begin, end = found
    replace(path, content[:begin] + content[end:])
    return f"{named(path)} at {begin}, {end - begin} of {len(content)} bytes"


@harm
def linked(data: Path, chance: Random) -> str:
    """A symbolic link in the place of a file or a folder: to it, to nothing, or to itself."""
    path = chosen(data, chance)
    path = chance.choice((path, path.parent)) if path.parent != data else path
    how = chance.choice(("to it", "to nothing", "to itself"))
    moved = data.parent / "elsewhere"
    path.rename(moved)
    path.symlink_to({"to it": moved, "to nothing": data / "nowhere", "to itself": path}[how])
    return f"{named(path)} {how}"


@harm
def other_kind(data: Path, chance: Random) -> str:
    """A folder or a pipe in the place of a file."""
    path = chosen(data, chance)
    path.unlink()
    how = chance.choice(("folder", "pipe"))
    make = Path.mkdir if how == "folder" else os.mkfifo
    make(path)
    return f"{named(path)} {how}"


@harm
def forbidden(data: Path, chance: Random) -> str:
    """Of a file or folder nothing may be done, or nothing be changed. The server must not run as root then."""
    path = chosen(data, chance)
    path = chance.choice((path, path, path.parent, data))
    mode = chance.choice((0o000, 0o444 if path.is_file() else 0o555))
    path.chmod(mode)
    return f"{named(path)} {mode:03o}"


@harm
def nothing(data: Path, chance: Random) -> str:
    return "at all"
