"""Whether what does not read to the end of a log's files is a torn write, or damage. Pure: it decides on what was read.

A start and `oncelog check` both ask here. Bytes that are not whole are a torn write, and are cut off, only where that
can take nothing that was promised:

| what is not whole | the machine ran on | it may have stopped |
|---|---|---|
| begins below an offset known to be on the disk | damage | damage |
| begins below the first offset of a later segment | damage | as the lines below |
| has nothing whole behind it | torn write | torn write |
| has whole batches behind it, and answers waited for flushes (`flushed` beyond the recovery point) | damage | damage |
| has whole batches behind it otherwise | damage | torn write |

A process that dies leaves what it wrote, in order, so nothing whole stands behind its torn write, and a segment begins
only where the one before is full. A machine that stops leaves any part of what was not flushed, later bytes without
earlier ones too.
"""

from typing import NamedTuple

NO_CRC = -1  # it is not known


class Written(NamedTuple):
    """The noted end of a log: the offset behind a batch, and the place where that ends."""

    offset: int = -1  # -1 where nothing is noted
    base_offset: int = 0  # of its segment
    position: int = 0  # 0 where no place is known
    crc: int = NO_CRC  # of that batch, as its header says


class Known(NamedTuple):
    """The facts about a log before its tail is read."""

    point_offset: int  # of the newest recovery point, good or damaged; 0 where there is none
    flushed: Written  # noted by flushes that answers waited for
    stayed_up: bool  # the machine has run on since the log was written
    begun_offset: int = 0  # where the last segment begins
    written: Written = Written()  # on a machine that has run on

    @property
    def durable_offset(self) -> int:
        """Everything below it was on the disk, or in the memory of a machine that has run on."""
        return max(self.point_offset, self.flushed.offset, self.written.offset)

    @property
    def last_place(self) -> Written:
        """The noted end that the files must have. Below the recovery point compaction may have changed places."""
        noted = (self.flushed, self.written)
        return max((each for each in noted if each.position and each.offset > self.point_offset), default=Written())


class Ending(NamedTuple):
    """The place at which reading ended, and why."""

    log_path: str
    position: int
    offset: int  # that would have come next
    reason: str
    behind: str = ""  # where something whole follows


def damage_of(ending: Ending, known: Known) -> str:
    """The reason why nothing may be cut off, and what to do then; empty for a torn write."""
    if ending.offset < known.durable_offset:
        why = f"Records up to offset {known.durable_offset} were on the disk"
    elif ending.behind and (known.stayed_up or known.flushed.offset > known.point_offset):
        why = f"Whole batches follow it ({ending.behind})"
    elif known.stayed_up and ending.offset < known.begun_offset:
        why = f"A segment that begins at offset {known.begun_offset} follows it"
    else:
        return ""
    return (
        f"{ending.log_path} is damaged at byte {ending.position}: {ending.reason}. {why}, so this is no torn write and "
        f"nothing is cut off. {what_to_do(ending.log_path.rpartition('/')[0], ending.offset)}"
    )


def are_two(one_crc: int, other_crc: int) -> bool:
    """Whether both are known, and of two batches."""
    return NO_CRC not in (one_crc, other_crc) and one_crc != other_crc


def not_as_written(log_path: str, written: Written) -> str:
    return (
        f"{log_path} is not what was written: offset {written.offset - 1} does not end at byte {written.position}, or "
        "not in the batch that stood there when the server ran"
    )


def what_to_do(folder: str, offset: int | None = None) -> str:
    """`offset`: from where on the records can be given up."""
    data, _, name = folder.rpartition("/")
    check = f"`oncelog check --data {data or '.'}"
    told = f"Restore the files from a backup; {check}` lists what is wrong."
    if offset is None:
        return told
    return f"{told} To go on without the records from offset {offset} on: {check} --cut {name}:{offset}`"
