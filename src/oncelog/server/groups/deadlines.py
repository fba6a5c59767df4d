"""The times at which something of a group is over: a phase of a rebalance, an id that was handed out, a session."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from oncelog.clock import Now
from oncelog.server.groups.member import Member, Members

JOIN_PHASE = ""  # where a member's id stands in a deadline: the group's own deadlines
SYNC_PHASE = "\0"
LOOKED_AT_AT_A_TIME = 100  # each that has passed may take a member out


class Deadlines:
    def __init__(self, members: Members) -> None:
        self._members = members
        # An old deadline stays until its time. A member has one place, no later than the end of its session: each
        # heartbeat moves that end, and when the time of the place has come it moves on.
        self._heap: list[tuple[int, str]] = []
        self.join_ms: int | None = None
        self.sync_ms: int | None = None
        self.ids_ms: dict[str, int] = {}  # ids handed out and not joined with yet

    @property
    def wake_ms(self) -> int | None:
        """No later than the first deadline."""
        return self._heap[0][0] if self._heap else None

    def set_join(self, deadline_ms: int) -> None:
        self.join_ms = deadline_ms
        self._note(deadline_ms, JOIN_PHASE)

    def clear_join(self) -> None:
        self.join_ms = None

    def set_sync(self, deadline_ms: int) -> None:
        self.sync_ms = deadline_ms
        self._note(deadline_ms, SYNC_PHASE)

    def clear_sync(self) -> None:
        self.sync_ms = None

    def hand_out(self, member_id: str, deadline_ms: int) -> None:
        self.ids_ms[member_id] = deadline_ms
        self._note(deadline_ms, member_id)

    def forget_id(self, member_id: str) -> None:
        self.ids_ms.pop(member_id, None)
        self._tidy()

    def begin_session(self, member: Member, now: Now, timeout_ms: int | None = None) -> None:
        span_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.session_deadline_ms = deadline_ms = now.monotonic_ms + span_ms
        if member.noted_ms is None or deadline_ms < member.noted_ms:
            member.noted_ms = deadline_ms
            self._note(deadline_ms, member.member_id)

    def end_session(self, member: Member) -> None:
        member.session_deadline_ms = None

    def take_passed(self, now_ms: int) -> list[tuple[int, str]]:
        """The deadlines that have passed, in their order. Where they are many it is the first of them, and `wake_ms`
        has passed too."""
        passed = []
        for _ in range(LOOKED_AT_AT_A_TIME):
            if not self._heap or self._heap[0][0] > now_ms:
                break
            deadline_ms, member_id = heappop(self._heap)
            if self._holds(deadline_ms, member_id):
                passed.append((deadline_ms, member_id))
        return passed

    def never_wake(self) -> None:
        self._heap.clear()

    def _note(self, deadline_ms: int, member_id: str) -> None:
        heappush(self._heap, (deadline_ms, member_id))
        self._tidy()

    def _tidy(self) -> None:
        """Drop what is over: not every id that came and went is kept until its time."""
        if len(self._heap) > 4 * (len(self._members) + len(self.ids_ms)) + 16:
            self._heap = list(self._all())
            heapify(self._heap)

    def _holds(self, deadline_ms: int, member_id: str) -> bool:
        """Whether what was noted is still so; a session that goes on is noted anew."""
        if member_id == JOIN_PHASE:
            return self.join_ms == deadline_ms
        if member_id == SYNC_PHASE:
            return self.sync_ms == deadline_ms
        member = self._members.get(member_id)
        if member is None:
            return self.ids_ms.get(member_id) == deadline_ms
        if member.noted_ms != deadline_ms:
            return False
        end_ms = member.session_deadline_ms
        is_over = end_ms == deadline_ms
        member.noted_ms = None if is_over else end_ms
        if member.noted_ms is not None:
            heappush(self._heap, (member.noted_ms, member_id))
        return is_over

    def _all(self) -> Iterator[tuple[int, str]]:
        if self.join_ms is not None:
            yield self.join_ms, JOIN_PHASE
        if self.sync_ms is not None:
            yield self.sync_ms, SYNC_PHASE
        for member_id, deadline_ms in self.ids_ms.items():
            yield deadline_ms, member_id
        for member in self._members:
            member.noted_ms = member.session_deadline_ms
            if member.noted_ms is not None:
                yield member.noted_ms, member.member_id
