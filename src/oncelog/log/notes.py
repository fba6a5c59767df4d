"""The small text files of a partition's folder: `log-start`, `leader-epoch`, `flushed` and `written`.

Where the log starts is nowhere else, and a start believes it as far as to remove what lies before, so it has a check
sum: `150 2c1b9d4e`. A person who has to write one leaves the sum out; the line feed shows that nothing is cut off.

`leader-epoch` says besides whose folder it is, so that one that was copied to the place of another is not served there,
and the boot under which a start last found the log whole, or made it so.

`flushed` says up to where flushes that answers waited for had brought the log to the disk, where the last batch ended,
and which CRC it has: another log may end there, too. It is written over in place after each of them, and never says
more than is true. It comes to the disk itself where it first passes the recovery point or a segment's beginning; after
that a power failure may leave an older one. A backup notes it in its copy, too. Earlier versions noted no CRC,
and those before them no place.

`written` says the same of a short while ago, flushed or not. It is never brought to the disk, and counts only on a
machine that has run on since: it names the boot that it is of.
"""

import re
from typing import NamedTuple

from crc32c import crc32c

from oncelog.log.disk import Disk, read_whole, replace_file, write_all
from oncelog.log.errors import LogStorageError
from oncelog.log.names import EPOCH_FILE, FLUSHED_FILE, LATEST_OFFSET, START_FILE, WRITTEN_FILE
from oncelog.log.verdict import NO_CRC, Written

LATEST_EPOCH = 2**30  # that is believed: each start opens one more
NO_BOOT = "-"  # it is not known, or nothing hangs on it
_UNKNOWN = b"-" * 8
_NOTE = re.compile(rb"(\S+) (\d+) (\d+) (\d+)(?: ([0-9a-f]{8}|-{8}))?")  # boot, offset, base offset, position, CRC


def write_start(disk: Disk, folder: str, offset: int) -> None:
    replace_file(disk, f"{folder}/{START_FILE}", f"{offset} {_sum_of(offset)}\n".encode())


def read_start(disk: Disk, folder: str) -> int:
    """Raises LogStorageError for anything but what was written, or what a person may write."""
    data = read_whole(disk, f"{folder}/{START_FILE}")
    offset = _offset_in(data)
    if offset is None:
        raise LogStorageError(
            f"{folder}/{START_FILE} is damaged, it holds {data[:40]!r}. Restore it from a copy, or put one line "
            "into it, with the first offset that shall be seen"
        )
    return offset


def write_flushed(disk: Disk, folder: str, flushed: Written, *, durable: bool) -> None:
    _write_over(disk, f"{folder}/{FLUSHED_FILE}", NO_BOOT, flushed, durable=durable)
    if durable:
        disk.sync_folder(folder)


def read_flushed(disk: Disk, folder: str) -> Written:
    """Nothing where it does not hold what was written. Earlier versions wrote the offset and its sum alone."""
    data = read_whole(disk, f"{folder}/{FLUSHED_FILE}")
    offset = _offset_in(data) if b" " in data else None
    return _noted_in(data)[1] if offset is None else Written(offset)


def write_written(disk: Disk, folder: str, written: Written) -> None:
    _write_over(disk, f"{folder}/{WRITTEN_FILE}", disk.boot_id() or NO_BOOT, written, durable=False)


def read_written(disk: Disk, folder: str) -> Written:
    """Nothing where it does not hold what was written, or another boot may have written it."""
    boot, written = _noted_in(read_whole(disk, f"{folder}/{WRITTEN_FILE}"))
    return written if _is_of_now(disk, boot) else Written()


def _noted_in(data: bytes) -> tuple[str, Written]:
    noted, _, check = data.removesuffix(b"\n").rpartition(b" ")
    found = _NOTE.fullmatch(noted)
    if found is None or check.decode("latin-1") != _crc(noted):
        return "", Written()
    boot, offset, base_offset, position, crc = found.groups()
    its_crc = NO_CRC if crc in (None, _UNKNOWN) else int(crc, 16)
    return boot.decode("latin-1"), Written(int(offset), int(base_offset), int(position), its_crc)


def _is_of_now(disk: Disk, boot: str) -> bool:
    """Never where either is not known."""
    return bool(boot) and boot == disk.boot_id()


def _write_over(disk: Disk, path: str, boot: str, written: Written, *, durable: bool) -> None:
    crc = _UNKNOWN if written.crc == NO_CRC else b"%08x" % written.crc  # of one length, as it is written over
    noted = b"%b %019d %019d %019d %b" % (boot.encode(), *written[:3], crc)
    file = disk.open(path, create=True)
    try:
        write_all(file, [b"%b %b\n" % (noted, _crc(noted).encode())], 0)
        if durable:
            file.fdatasync()
    finally:
        file.close()


def _offset_in(data: bytes) -> int | None:
    offset, _, check = data.removesuffix(b"\n").partition(b" ")
    is_number = offset.isdigit() and len(offset) <= 19 and int(offset) <= LATEST_OFFSET
    if not is_number or not data.endswith(b"\n") or (check and check.decode("latin-1") != _sum_of(int(offset))):
        return None
    return int(offset)


class Opened(NamedTuple):
    """The note of the last start."""

    epoch: int = -1  # -1 for what cannot be one: batches and snapshots name every epoch that holds a record
    owner: str = ""  # empty where nothing says it, as in folders of earlier versions
    boot: str = ""  # the same

    def has_run_on(self, disk: Disk) -> bool:
        """Whether the machine did, since a start left nothing in this log that a power failure had torn. One that
        refused the log, or could not cut it, leaves the note of an earlier boot, or none."""
        return _is_of_now(disk, self.boot)


def write_opened(disk: Disk, folder: str, opened: Opened) -> None:
    named = f"{opened.owner} {opened.boot}".rstrip()
    noted = f" {named} {_crc(named.encode())}" if named else ""
    replace_file(disk, f"{folder}/{EPOCH_FILE}", f"{opened.epoch}{noted}\n".encode(), durable=False)


def read_opened(disk: Disk, folder: str) -> Opened:
    noted, _, rest = read_whole(disk, f"{folder}/{EPOCH_FILE}").rstrip().partition(b" ")
    named, _, check = rest.rpartition(b" ")
    epoch = int(noted) if noted.isdigit() and len(noted) <= 10 else -1
    is_whole = check.decode("latin-1") == _crc(named)
    owner, _, boot = (named if is_whole else b"").decode("latin-1").partition(" ")
    return Opened(epoch if epoch <= LATEST_EPOCH else -1, owner, boot)


def what_is_wrong_with_owner(folder: str, opened: Opened, owner: str) -> str:
    """Empty where nothing is."""
    if not opened.owner or not owner or opened.owner == owner:
        return ""
    return (
        f"{folder} belongs to {opened.owner} (topic id/partition) and stands in the place of {owner}. Nothing in it is "
        f"changed. Put the right folder there; to serve this one in its place, remove {folder}/{EPOCH_FILE}"
    )


def _sum_of(offset: int) -> str:
    return _crc(b"%d" % offset)


def _crc(data: bytes) -> str:
    return f"{crc32c(data):08x}"
