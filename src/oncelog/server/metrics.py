"""What the server counts while it works: plain integers that the hot path adds to, gathered when somebody asks."""

from collections import defaultdict


class Metrics:
    __slots__ = (
        "bytes_received",
        "bytes_scrubbed",
        "bytes_sent",
        "connections_accepted",
        "connections_open",
        "connections_refused",
        "elections",
        "requests",
        "storage_errors",
        "throttled",
        "throttled_ms",
    )

    def __init__(self) -> None:
        self.requests: defaultdict[int, int] = defaultdict(int)  # by API key
        self.bytes_received = 0
        self.bytes_sent = 0
        self.bytes_scrubbed = 0  # read again to find rot
        self.connections_accepted = 0
        self.connections_open = 0
        self.connections_refused = 0  # over max.connections, or closed for what they sent
        self.elections = 0  # of this server, to lead a partition
        self.storage_errors = 0  # writes that the disk refused
        self.throttled: defaultdict[str, int] = defaultdict(int)  # requests after which a client had to wait, by quota
        self.throttled_ms: defaultdict[str, int] = defaultdict(int)
