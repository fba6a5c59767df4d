"""The time of a member's next heartbeat, and the end of its session when the coordinator does not answer."""

from dataclasses import dataclass


@dataclass(slots=True)
class Heartbeats:
    session_timeout_ms: int
    interval_ms: int
    next_ms: int = 0
    _heard_ms: int = 0
    _asked: int | None = None
    _asked_ms: int = 0
    _generation: int = -1

    def heard(self, at_ms: int) -> None:
        """The coordinator has counted the member's session from no earlier than this."""
        self._heard_ms = max(self._heard_ms, at_ms)

    def is_due(self, now_ms: int) -> bool:
        return self._asked is None and now_ms >= self.next_ms

    @property
    def expires_ms(self) -> int:
        return self._heard_ms + self.session_timeout_ms

    @property
    def is_free(self) -> bool:
        """No answer is waited for."""
        return self._asked is None

    def sent(self, request_id: int, generation: int, now_ms: int) -> None:
        self._asked, self._asked_ms, self._generation = request_id, now_ms, generation
        self.next_ms = now_ms + self.interval_ms

    def answered(self, request_id: int, generation: int) -> bool:
        """Whether it is the answer that is waited for, and still says something about this generation."""
        if request_id != self._asked:
            return False
        self._asked = None
        return generation == self._generation

    def confirmed(self) -> None:
        """The last one was taken; the session counts from when it was sent, to be safe."""
        self.heard(self._asked_ms)

    def failed(self, request_id: int) -> bool:
        if request_id != self._asked:
            return False
        self._asked = None
        return True

    def stop(self) -> None:
        self._asked = None
