"""When something of a group is over: the phases of a rebalance, ids that were handed out, the members' sessions."""

from collections.abc import Iterator

from oncelog.clock import Now
from oncelog.server.groups.member import Member, Members

JOIN_PHASE = ""  # where a member's id stands in a deadline: the group's own deadlines
SYNC_PHASE = "\0"


class Deadlines:
    def __init__(self, members: Members) -> None:
        self._members = members
        self.wake_ms: int | None = None  # no later than the first deadline; a heartbeat moves a deadline but not this
        self.join_ms: int | None = None
        self.sync_ms: int | None = None
        self.ids_ms: dict[str, int] = {}  # ids handed out and not joined with yet

    def set_join(self, deadline_ms: int) -> None:
        self.join_ms = deadline_ms
        self._wake_at(deadline_ms)

    def clear_join(self) -> None:
        self.join_ms = None

    def set_sync(self, deadline_ms: int) -> None:
        self.sync_ms = deadline_ms
        self._wake_at(deadline_ms)

    def clear_sync(self) -> None:
        self.sync_ms = None

    def hand_out(self, member_id: str, deadline_ms: int) -> None:
        self.ids_ms[member_id] = deadline_ms
        self._wake_at(deadline_ms)

    def forget_id(self, member_id: str) -> None:
        self.ids_ms.pop(member_id, None)

    def begin_session(self, member: Member, now: Now, timeout_ms: int | None = None) -> None:
        span_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.session_deadline_ms = now.monotonic_ms + span_ms
        self._wake_at(member.session_deadline_ms)

    def end_session(self, member: Member) -> None:
        member.session_deadline_ms = None

    def all(self) -> Iterator[tuple[int, str]]:
        if self.join_ms is not None:
            yield self.join_ms, JOIN_PHASE
        if self.sync_ms is not None:
            yield self.sync_ms, SYNC_PHASE
        for member_id, deadline_ms in self.ids_ms.items():
            yield deadline_ms, member_id
        for member in self._members:
            if member.session_deadline_ms is not None:
                yield member.session_deadline_ms, member.member_id

    def wake_for_next(self) -> None:
        self.wake_ms = min((deadline_ms for deadline_ms, _ in self.all()), default=None)

    def never_wake(self) -> None:
        self.wake_ms = None

    def _wake_at(self, deadline_ms: int) -> None:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
