"""Until when the members of a group must be heard of, and until when they must have done what they were told to: given
up places, joined again, or asked for their share."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush


class Sessions:
    """A member has one place among the deadlines, no later than the first of its own: each heartbeat moves that, and
    when the time of the place has come it moves on."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._noted_ms: dict[str, int] = {}
        self._session_ms: dict[str, int] = {}
        self._acting_ms: dict[str, int] = {}

    @property
    def wake_ms(self) -> int | None:
        """No later than the first deadline."""
        return self._heap[0][0] if self._heap else None

    def has(self, member_id: str) -> bool:
        return member_id in self._session_ms

    def is_to_act(self, member_id: str) -> bool:
        return member_id in self._acting_ms

    def begin(self, member_id: str, deadline_ms: int) -> None:
        self._session_ms[member_id] = deadline_ms
        self._note(member_id)

    def begin_acting(self, member_id: str, deadline_ms: int) -> None:
        self._acting_ms[member_id] = deadline_ms
        self._note(member_id)

    def acted(self, member_id: str) -> None:
        self._acting_ms.pop(member_id, None)

    def end(self, member_id: str) -> None:
        for deadlines in (self._session_ms, self._acting_ms, self._noted_ms):
            deadlines.pop(member_id, None)

    def passed(self, now_ms: int) -> Iterator[str]:
        """Members whose time is over, in the order of their deadlines; one that is not taken here is found again."""
        while self._heap and self._heap[0][0] <= now_ms:
            noted_ms, member_id = heappop(self._heap)
            if self._noted_ms.get(member_id) != noted_ms:
                continue  # it stands elsewhere, or left
            del self._noted_ms[member_id]
            deadline_ms = self._deadline_ms(member_id)
            if deadline_ms is not None and deadline_ms <= now_ms:
                yield member_id
            elif deadline_ms is not None:
                self._note(member_id)

    def _deadline_ms(self, member_id: str) -> int | None:
        found = [each[member_id] for each in (self._session_ms, self._acting_ms) if member_id in each]
        return min(found, default=None)

    def _note(self, member_id: str) -> None:
        deadline_ms, noted_ms = self._deadline_ms(member_id), self._noted_ms.get(member_id)
        if deadline_ms is None or (noted_ms is not None and noted_ms <= deadline_ms):
            return
        self._noted_ms[member_id] = deadline_ms
        heappush(self._heap, (deadline_ms, member_id))
        if len(self._heap) > 4 * len(self._noted_ms) + 16:
            self._heap = [(at_ms, each) for each, at_ms in self._noted_ms.items()]
            heapify(self._heap)
