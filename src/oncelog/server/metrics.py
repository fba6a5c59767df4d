"""The counters of a server at work: plain integers that the hot path adds to, gathered when somebody asks."""

from collections import defaultdict


class Metrics:
    __slots__ = (
        "authentications",
        "authentications_barred",
        "authentications_failed",
        "bytes_received",
        "bytes_scrubbed",
        "bytes_sent",
        "connections_accepted",
        "connections_open",
        "connections_refused",
        "elections",
        "requests",
        "sessions_ended",
        "storage_errors",
        "strangers_closed",
        "throttled",
        "throttled_ms",
    )

    def __init__(self) -> None:
        self.requests: defaultdict[int, int] = defaultdict(int)  # by API key
        self.authentications = 0  # those that were good
        self.authentications_failed = 0
        self.authentications_barred = 0  # not looked at, for the failures of their hosts
        self.sessions_ended = 0  # connections closed because their proofs were over
        self.strangers_closed = 0  # connections closed before they had proven anything
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
