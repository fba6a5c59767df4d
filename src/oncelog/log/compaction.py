from typing import TYPE_CHECKING

from oncelog.clock import Now

if TYPE_CHECKING:
    from oncelog.log.partition import PartitionLog


class CompactionJob:
    def run(self) -> None: ...


def begin(log: "PartitionLog", now: Now) -> CompactionJob | None:
    return None


def finish(log: "PartitionLog", job: CompactionJob) -> None:
    return None
