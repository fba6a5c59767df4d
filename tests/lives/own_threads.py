"""The threads of this process, but those of servers in it, which begin theirs for what takes long as it comes."""

import threading

SERVERS_THREADS = tuple(
    f"oncelog-{work}" for work in ("aside", "disk", "notes", "pids", "scrub", "flush", "housekeeping")
)


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith(SERVERS_THREADS)}
