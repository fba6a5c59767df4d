"""Changes of groups go to the log, and each group hears how that went.

While the topic for them is being made, very many may come together, of up to a megabyte each. They go to the log in
turns then, and those that come meanwhile go behind them, so that the changes of a group keep their order.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from oncelog.clock import Clock, Now
from oncelog.log.work_steps import Pauses
from oncelog.server.alarms import InTurns
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import Effect, Store
from oncelog.server.groups.store import GroupStore, Settled
from oncelog.server.topics import Topic

logger = logging.getLogger(__name__)


class Storing:
    def __init__(
        self,
        store: GroupStore,
        clock: Clock,
        in_turns: InTurns,
        is_served: Callable[[Group], bool],
        has_memory: Callable[[int], bool],
        count: Callable[[Group], None],
        carry_out: Callable[[Group, Iterable[Effect], Now], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._in_turns = in_turns
        self._is_served = is_served
        self._has_memory = has_memory
        self._count = count
        self._carry_out = carry_out
        self._waiting: deque[tuple[Group, Store]] = deque()
        self.waiting_bytes = 0  # what they assign, which is not their groups' yet

    def store(self, group: Group, change: Store, now: Now, making: asyncio.Future[Topic] | None) -> None:
        """`making`: of the topic, while it goes on."""
        if making is None and not self._waiting:
            self._put(group, change, now)
        elif not self._has_memory(group.growth_bytes(change.group)):
            self._tell(group, change, ErrorCode.coordinator_not_available)
        else:
            if making is not None and not self._waiting:
                making.add_done_callback(lambda future: self._in_turns(self._put_waiting()))
            self._waiting.append((group, change))
            self.waiting_bytes += change.group.assigned_bytes

    def _put_waiting(self) -> Pauses:
        while self._waiting:
            group, change = self._waiting.popleft()
            self.waiting_bytes -= change.group.assigned_bytes
            try:
                self._put(group, change, self._clock.now())
            except Exception:  # whatever befell one group, those of the others are stored
                logger.exception("the group %r could not be stored", group.group_id)
            yield

    def _put(self, group: Group, change: Store, now: Now) -> None:
        if not self._is_served(group):
            return  # it ended before there was where to store it
        settled: Settled
        try:
            if not self._has_memory(group.growth_bytes(change.group)):
                raise KafkaError(ErrorCode.coordinator_not_available)
            settled = self._store.put_group(group.group_id, change.group, now)
            group.note_assigned(change.group)
            self._count(group)
        except KafkaError as refusal:
            is_too_large = refusal.code is ErrorCode.invalid_commit_offset_size  # a word for commits only
            settled = ErrorCode.unknown_server_error if is_too_large else refusal.code
        self._tell(group, change, settled)

    def _tell(self, group: Group, change: Store, settled: Settled) -> None:
        pending = change.pending
        if pending is None:
            return

        def stored(error: ErrorCode) -> Pauses:
            """Pause: to put a large group into bytes has taken its turn, and to answer its members takes another."""
            yield
            later = self._clock.now()
            self._carry_out(group, group.stored(pending, error, later), later)

        if isinstance(settled, ErrorCode):
            self._in_turns(stored(settled))
        else:
            settled.add_done_callback(lambda future: self._in_turns(stored(future.result())))
