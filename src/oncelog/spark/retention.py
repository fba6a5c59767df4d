"""Records that retention takes soon after they were written, because their timestamps are old. Pure."""

from collections.abc import Callable

from oncelog.clock import DAY_MS


def kept_ms(config: Callable[[str], str | None]) -> int | None:
    """The time for which a topic with these configurations keeps records, by their own timestamps; None: for ever."""
    if "delete" not in (config("cleanup.policy") or "") or config("message.timestamp.type") == "LogAppendTime":
        return None
    kept = int(config("retention.ms") or -1)
    return kept if kept >= 0 else None


def soon_gone(topic: str, kept: int, whose: str, done: str) -> str:
    return (
        f"{topic} keeps records for {kept / DAY_MS:g} days (retention.ms), and some of {whose} are older: they may be "
        f"removed soon after they were {done}"
    )
