"""Facts about a log that was copied: all of it is on the disk, so none of it can be a torn write later."""

from oncelog.log import snapshots
from oncelog.log.disk import Disk
from oncelog.log.knowledge import known_of, opened_of
from oncelog.log.names import LOG, log_path, offsets_of
from oncelog.log.notes import write_flushed
from oncelog.log.partition_checking import Unreadable, batches
from oncelog.log.verdict import Written
from oncelog.records.header import body_crc


def note_copied(disk: Disk, folder: str, *, stayed_up: bool) -> None:
    """Note it in the copy, whose files are on the disk. `stayed_up`: the machine has run on since the original was
    written."""
    names = disk.listdir(folder)
    known = known_of(disk, folder, names, opened_of(disk, folder, names), stayed_up)
    end, is_whole = _whole_end(disk, folder, offsets_of(names, LOG))
    if not is_whole:
        if not known.stayed_up:
            return  # what a stop of the machine left of the original is for a start of the copy to decide
        end = max(end, Written(known.durable_offset), known.last_place)
    if end.offset > max(known.point_offset, known.flushed.offset):
        write_flushed(disk, folder, end, durable=True)


def _whole_end(disk: Disk, folder: str, bases: list[int]) -> tuple[Written, bool]:
    """The end of the batches behind the recovery point, and whether the files end there, too."""
    point = next((each.point for each in snapshots.newest_first(disk, folder)), None)
    end, position = Written(0), 0
    if point is not None and point.base_offset in bases:
        end, position = Written(point.offset), point.position
        bases = [base for base in bases if base >= point.base_offset]
    for base in bases:
        file = disk.open(log_path(folder, base))
        try:
            end = max(end, Written(base))
            for found in batches(file, position, file.size()):
                if isinstance(found, Unreadable):
                    return end, False
                at, header, batch = found
                if header.base_offset < end.offset or body_crc(batch, 0, len(batch)) != header.crc:
                    return end, False
                end = Written(header.last_offset + 1, base, at + len(batch), header.crc)
        finally:
            file.close()
        position = 0
    return end, True
