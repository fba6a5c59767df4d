"""The part of a member that is the same in both protocols: one question and one call of the application at a time,
pauses that grow, and the time since the last poll. `membership.py` is the classic protocol, `consumer_membership.py`
KIP-848's.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count

from oncelog.client.errors import KafkaError
from oncelog.client.groups.membership_steps import (
    Action,
    Asked,
    Assign,
    Member,
    MemberLimits,
    Report,
    Revoke,
)


class Participant(ABC):
    def __init__(self, limits: MemberLimits, random: Callable[[], float]) -> None:
        self.limits = limits
        self.member = Member(instance_id=limits.instance_id)
        self.fatal: KafkaError | None = None
        self.thrown_out: KafkaError | None = None  # why it is no member any more, until it is one again or has left
        self._random = random
        self._request_ids = count(1)
        self._node_id: int | None = None
        self._asked: Asked | None = None  # the one request that is under way
        self._calling: Revoke | Assign | None = None
        self._asked_ms = 0
        self._now_ms = 0
        self._polled_ms = 0
        self._retry_ms = 0
        self._failures = 0
        self._out: list[Action] = []

    @property
    def coordinator(self) -> int | None:
        """The node that is asked now, if one is known."""
        return self._node_id

    def coordinator_found(self, request_id: int, node_id: int) -> None:
        if self._answered(request_id):
            self._node_id = node_id  # that it was found is no success yet: it may refuse whatever it is asked

    def actions(self, now_ms: int) -> list[Action]:
        self._now_ms = now_ms
        self._look_at_clocks(now_ms)
        while self._calling is None and self._next():
            continue
        self._beat(now_ms)
        out, self._out = self._out, []
        return out

    @abstractmethod
    def _look_at_clocks(self, now_ms: int) -> None:
        """Do what is due because nothing else happened."""

    @abstractmethod
    def _next(self) -> bool:
        """The next step, and whether there may be another one right after it. Not asked for while the application is
        called."""

    @abstractmethod
    def _beat(self, now_ms: int) -> None:
        """Do what goes on while the application is called, too."""

    def _answered(self, request_id: int) -> Asked | None:
        """The request that this answers. Answers to what was given up meanwhile say nothing."""
        asked = self._asked
        if asked is None or asked.request_id != request_id:
            return None
        self._asked = None
        return asked

    def _ask(self, action: Asked) -> bool:
        self._asked, self._asked_ms = action, self._now_ms
        self._out.append(action)
        return False

    def _call(self, call: Revoke | Assign) -> bool:
        self._calling = call
        self._out.append(call)
        return False

    def _report(self, error: KafkaError) -> None:
        self._out.append(Report(error))

    def _pause(self, now_ms: int) -> None:
        longest_ms = self.limits.retry_backoff_max_ms
        pause_ms = min(self.limits.retry_backoff_ms * 2 ** min(self._failures, 20), longest_ms)
        self._failures += 1
        self._retry_ms = now_ms + int(pause_ms * (0.8 + 0.4 * self._random()))

    def _not_polled(self) -> KafkaError:
        words = f"the application did not poll for {self.limits.rebalance_timeout_ms} ms (max.poll.interval.ms)"
        return KafkaError(KafkaError._MAX_POLL_EXCEEDED, words)
