"""A member of a group over real connections: what its machine wants done is done, and it is told what came of it.

`group.protocol` says which machine that is: `classic_requests.py` or `consumer_requests.py` has it, and what it asks.
"""

import asyncio
import contextlib
import logging
import random as chance
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

from oncelog.client.errors import KafkaError, KafkaException, error_of
from oncelog.client.groups.classic_requests import ClassicRequests
from oncelog.client.groups.consumer_requests import ConsumerRequests
from oncelog.client.groups.membership import ID_GIVEN
from oncelog.client.groups.membership_steps import (
    Action,
    Assign,
    Beside,
    FindCoordinator,
    Join,
    Leave,
    Member,
    MemberLimits,
    Report,
    Request,
    Revoke,
)
from oncelog.client.net.tasks import Tasks
from oncelog.clock import monotonic_s
from oncelog.slots import AnyPlace

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.properties import ConsumerSettings

_log: Final = logging.getLogger("oncelog.client")

LEAVE_PATIENCE_MS: Final = 5000
CONSUMER: Final = "consumer"  # of `group.protocol`: KIP-848
TOLD: Final = "the coordinator shared anew"  # the only reason that there is then


class Listener(Protocol):
    """The application's side. Each is awaited before anything else happens, but for heartbeats."""

    async def revoked(self, partitions: frozenset[AnyPlace], *, is_lost: bool) -> None: ...

    async def assigned(self, added: frozenset[AnyPlace]) -> None: ...

    def failed(self, error: KafkaError) -> None: ...


def _now_ms() -> int:
    return int(monotonic_s() * 1000)


class Group:
    def __init__(
        self,
        settings: "ConsumerSettings",
        brokers: "Brokers",
        listener: Listener,
        *,
        now_ms: Callable[[], int] = _now_ms,
        random: Callable[[], float] = chance.random,
    ) -> None:
        if settings.group_id is None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_GROUP, "Local: Unknown group: `group.id` is not set"))
        self.group_id = settings.group_id
        self._settings = settings
        self._brokers = brokers
        self._listener = listener
        self._now_ms = now_ms
        limits = MemberLimits(
            instance_id=settings.group_instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
            rack=settings.client_rack,
        )
        is_consumer = settings.group_protocol == CONSUMER
        requests = ConsumerRequests if is_consumer else ClassicRequests
        self._requests: ConsumerRequests | ClassicRequests = requests(settings, brokers, limits, now_ms, random)
        self._machine = self._requests.machine
        self._tasks = Tasks()
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._is_advancing = False
        self.rebalances = 0  # how often partitions came or went, for statistics
        self.rebalanced_s = monotonic_s()
        self.rebalance_reason = TOLD if is_consumer else ""

    # --- what the facade says

    @property
    def member(self) -> Member:
        return self._machine.member

    @property
    def assigned(self) -> frozenset[AnyPlace]:
        return self._machine.owned

    @property
    def is_steady(self) -> bool:
        return self._machine.is_steady

    @property
    def coordinator(self) -> int | None:
        return self._machine.coordinator

    @property
    def fatal(self) -> KafkaError | None:
        return self._machine.fatal

    @property
    def thrown_out(self) -> KafkaError | None:
        """The reason why nothing may be committed now: the group has given away the partitions that were read."""
        return self._machine.thrown_out

    def subscribe(self, topics: Collection[str], pattern: str = "") -> None:
        """Be a member that wants these; called again, one that wants others. None at all gives everything back. A
        pattern is the coordinator's to resolve, which that of the classic protocol does not."""
        self._machine.subscribe(topics, self._now_ms(), pattern)
        self._advance()

    def polled(self) -> None:
        self._machine.polled(self._now_ms())
        self._advance()

    def refused(self, code: int, generation: int) -> None:
        self._machine.refused(code, generation, self._now_ms())
        self._advance()

    async def leave(self) -> None:
        """Gives everything back, says goodbye, and ends every task. A callback that does not return is not waited for
        longer than the group waits for it."""
        self._machine.leave()
        self._advance()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.max_poll_interval_ms / 1000):
                    while not self._machine.is_out:
                        await self._changed.wait()
        finally:
            await self._tasks.close()
            if self._timer is not None:
                self._timer.cancel()

    # --- what the machine wants

    def _advance(self) -> None:
        """Do what is to be done, until nothing is. A listener that is called here may call back meanwhile."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while actions := self._machine.actions(self._now_ms()):
                for action in actions:
                    self._do(action)
        finally:
            self._is_advancing = False
        self._set_timer()
        self._changed.set()
        self._changed = asyncio.Event()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._machine.next_due_ms()
        if due_ms is not None:
            delay_s = max(due_ms - self._now_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._advance)

    def _do(self, action: Action) -> None:
        if isinstance(action, Report):
            self._listener.failed(action.error)
        elif isinstance(action, Revoke | Assign):
            self.rebalances += 1
            self.rebalanced_s = monotonic_s()
            self._tasks.begin(self._call(action))
        else:
            self._ask_soon(action)

    def _ask_soon(self, action: Request) -> None:
        if isinstance(action, Join) and action.reason != ID_GIVEN:
            self.rebalance_reason = action.reason
        is_in_course = not isinstance(action, Beside)
        if is_in_course and self._asking is not None:
            self._asking.cancel()  # there is one at a time, so what is still waited for was given up
        task = self._tasks.begin(self._ask(action))
        if is_in_course:
            self._asking = task

    async def _call(self, action: Revoke | Assign) -> None:
        try:
            if isinstance(action, Revoke):
                await self._listener.revoked(action.partitions, is_lost=action.is_lost)
            else:
                await self._listener.assigned(action.partitions)
        except Exception as error:
            self._listener.failed(KafkaError(KafkaError._APPLICATION, f"a rebalance callback failed: {error!r}"))
        self._machine.application_done()
        self._advance()

    async def _ask(self, action: Request) -> None:
        try:
            await self._ask_once(action)
        except KafkaException as failure:
            self._machine.failed(action.request_id, failure.error, self._now_ms())
        except Exception as unexpected:
            _log.exception("a group's %s failed unexpectedly", type(action).__name__)
            error = KafkaError(KafkaError._FAIL, f"{type(action).__name__}: {unexpected!r}")
            self._machine.failed(action.request_id, error, self._now_ms())
        if self._asking is asyncio.current_task():
            self._asking = None
        self._advance()

    async def _ask_once(self, action: Request) -> None:
        if isinstance(action, FindCoordinator):
            node_id = await self._brokers.coordinators.anew(self.group_id)
            self._machine.coordinator_found(action.request_id, node_id)
            return
        try:
            # What goodbye takes, connecting included.
            async with asyncio.timeout(LEAVE_PATIENCE_MS / 1000 if isinstance(action, Leave) else None):
                await self._requests.ask(action)
        except TimeoutError:
            raise KafkaException(error_of(KafkaError._TIMED_OUT)) from None
