"""Quotas of clients, and what they have taken of late, for all connections together.

As Kafka's, each broker counts for itself. Request time is that of the one thread that serves everybody, so that
`request_percentage` 50 is half of it.
"""

from collections.abc import Callable
from typing import Final

from oncelog.security.documents import Kind
from oncelog.security.quotas import Addresses, Limit, Limits, Quota, read
from oncelog.security.rates import Rates, Windows
from oncelog.server.metrics import Metrics
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

MOST_RATES: Final = 10_000  # of one kind; each takes about a kilobyte
UNBOUNDED: Final = 2**63 - 1
NS_OF_A_PERCENT: Final = 10_000_000  # of a second
MOST_NAME_CHARACTERS: Final = 255
COUNTED: Final = (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST)

Who = tuple[str, str]  # user and client id; one that is empty is not asked for
Found = tuple[float, Rates[Who], Who]
UNKNOWN: Final = (0.0, Rates[Who](Windows(1, 1), 1), ("", ""))


class Quotas:
    def __init__(self, settings: Settings, topics: Topics, metrics: Metrics) -> None:
        windows = Windows(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
        self._window_ms = windows.size_ms
        self._windows_s = (windows.number - 1) * settings.quota_window_size_seconds
        self._topics = topics
        self._metrics = metrics
        self._told: list[Callable[[], None]] = []
        # Those whom somebody named, and those who named themselves: however many these are, they drive out no others.
        self._named: dict[Quota, Rates[Who]] = {kind: Rates(windows, MOST_RATES) for kind in COUNTED}
        self._open: dict[Quota, Rates[Who]] = {kind: Rates(windows, MOST_RATES) for kind in COUNTED}
        self._hosts: Rates[str] = Rates(windows, MOST_RATES)
        self._limits: dict[Quota, Limits] = {}
        self._found: dict[Quota, dict[Who, Found | None]] = {}  # what was looked up
        self._addresses = Addresses({})
        self.is_on = False  # whether anything is asked about requests
        topics.tell_documents(self._see)

    def tell_changes(self, told: Callable[[], None]) -> None:
        self._told.append(told)

    def _see(self, kind: Kind) -> None:
        if kind is not Kind.QUOTAS:
            return
        quotas = read(self._topics.document(kind))
        self._limits = {each: Limits(quotas, each) for each in COUNTED}
        self._addresses = Addresses(quotas)
        self._found = {each: {} for each in COUNTED}
        self.is_on = any(self._limits.values())
        for told in self._told:
            told()

    @property
    def tracked(self) -> int:
        """Rates that are remembered."""
        return len(self._hosts) + sum(map(len, self._named.values())) + sum(map(len, self._open.values()))

    def produced_ms(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """The time that a client which has sent these bytes must wait."""
        return self._wait_ms(Quota.PRODUCE, user, client_id, size_bytes, now_ms)

    def fetched_ms(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """The time that a client which asks for these bytes must wait for them. One that had nothing of late gets them
        in any case: else an answer larger than the quota of all windows would never come."""
        limit = self._limits[Quota.FETCH].of(user, client_id)
        if limit is None:
            return 0
        rates, who = self._rates(Quota.FETCH, limit)
        is_unused = rates.is_unused(who, now_ms)
        wait_ms = rates.wait_ms(who, limit.bound, size_bytes, now_ms)
        if wait_ms and not is_unused:
            rates.take_back(who, size_bytes, now_ms)
            return wait_ms
        return 0

    def most_fetched_bytes(self, user: str, client_id: str) -> int:
        """A larger answer would have to wait in any case."""
        limit = self._limits[Quota.FETCH].of(user, client_id)
        return UNBOUNDED if limit is None else int(min(limit.bound * self._windows_s, UNBOUNDED))

    def spent_ms(self, user: str, client_id: str, spent_ns: int, now_ms: int) -> int:
        """The time that a client which has taken this processor time must wait: a window at most."""
        wait_ms = self._wait_ms(Quota.REQUEST, user, client_id, spent_ns / NS_OF_A_PERCENT, now_ms)
        return min(wait_ms, self._window_ms)

    def connected_ms(self, host: str, now_ms: int) -> int:
        """The time that refusing one connection too many takes; 0 where it is not too many."""
        bound = self._addresses.of(host) if self._addresses else None
        if bound is None:
            return 0
        wait_ms = min(self._hosts.wait_ms(host, bound, 1, now_ms), self._window_ms)
        if wait_ms:
            self._hosts.take_back(host, 1, now_ms)
            self.note("connection", wait_ms)
        return wait_ms

    def note(self, kind: str, wait_ms: int) -> None:
        """Count that a client has to wait."""
        self._metrics.throttled[kind] += 1
        self._metrics.throttled_ms[kind] += wait_ms

    def _wait_ms(self, kind: Quota, user: str, client_id: str, value: float, now_ms: int) -> int:
        found = self._found[kind].get((user, client_id), UNKNOWN)
        if found is UNKNOWN:
            found = self._look_up(kind, user, client_id)
        if found is None:
            return 0
        bound, rates, who = found
        return rates.wait_ms(who, bound, value, now_ms)

    def _look_up(self, kind: Quota, user: str, client_id: str) -> "Found | None":
        limit = self._limits[kind].of(user, client_id)
        found = None if limit is None else (limit.bound, *self._rates(kind, limit))
        if len(client_id) <= MOST_NAME_CHARACTERS:
            known = self._found[kind]
            if len(known) >= MOST_RATES:
                known.clear()
            known[user, client_id] = found
        return found

    def _rates(self, kind: Quota, limit: Limit) -> "tuple[Rates[Who], Who]":
        """A client may call itself by 32,000 letters: those that differ only behind the first ones count as one."""
        who = limit.user[:MOST_NAME_CHARACTERS], limit.client_id[:MOST_NAME_CHARACTERS]
        return (self._open if limit.is_open else self._named)[kind], who
