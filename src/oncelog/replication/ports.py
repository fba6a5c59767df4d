"""A partition's log, as the machines need it. `log.partition.PartitionLog` is one."""

from typing import Protocol

from oncelog.clock import Now


class Epochs(Protocol):
    def last_before(self, offset: int) -> int: ...


class Log(Protocol):
    @property
    def log_start_offset(self) -> int: ...

    @property
    def first_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def safe_offset(self) -> int:
        """The end of what others may be told that it has: what was flushed, where that is asked for."""
        ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def offline(self) -> str | None:
        """The reason why it takes nothing in any more; None while it does."""
        ...

    @property
    def refuses(self) -> bool:
        """Whether its disk did, when it was last asked to take something in: it may be full."""
        ...

    def try_disk(self, now_ms: int) -> None:
        """Whether it goes on refusing."""
        ...

    @property
    def epochs(self) -> Epochs: ...

    def begin_epoch(self, leader_epoch: int) -> None: ...

    def follow_epoch(self, leader_epoch: int) -> None: ...

    def end_of_epoch(self, epoch: int) -> tuple[int, int]: ...

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, limit_offset: int | None = None
    ) -> bytes: ...

    def append_replicated(self, batches: bytes | bytearray | memoryview, now: Now) -> int: ...

    def beginning(self) -> bytes: ...

    def begin_anew(self, encoded: bytes, now: Now) -> None: ...

    def truncate_to(self, offset: int) -> int: ...

    def advance_high_watermark(self, offset: int) -> None: ...

    def delete_before(self, offset: int, now: Now | None = None) -> int: ...
