"""One client's connection: requests in, answers out, in the order of the requests.

Produce requests that arrived together are staged one by one and written by one commit, and all answers of a chunk leave
by one write. How bytes become frames, and which wait, is in `receiver.py`; how answers leave, in
`outgoing.py`.

A connection stands still ("held") while a request waits (long poll, join), while the client does not take its answers,
while others have their turn, and while a request of another kind stands behind produce requests whose answers wait for
the disk.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from oncelog.clock import Now
from oncelog.log.errors import LogStorageError
from oncelog.server.access import ANONYMOUS, EVERY_RIGHT, Rights
from oncelog.server.api import Api
from oncelog.server.bodies import Look, LookFirst, Verdicts
from oncelog.server.call import Call, Encoded
from oncelog.server.connections import Connections
from oncelog.server.eagerly import Pending
from oncelog.server.endpoints import Endpoint
from oncelog.server.handling import NoAnswer, drop_answer, handled, read_aside, refused, too_new
from oncelog.server.outgoing import Outgoing
from oncelog.server.principal import KEPT_BYTES, principal_of
from oncelog.server.produce import Producing
from oncelog.server.produce_pattern import Pattern
from oncelog.server.produce_transactions import Verification, VerifyFirst
from oncelog.server.produce_turns import InTurns, TurnsFirst
from oncelog.server.receiver import LARGE_FRAME_BYTES, Receiver
from oncelog.server.request_reading import read_by_kio, read_fast
from oncelog.server.throttle import Throttle, slow_down, throttle_of
from oncelog.server.unanswered import Unanswered
from oncelog.wire.frames import (
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    REQUEST_HEAD_BYTES,
    SIZE,
    SIZE_BYTES,
    MalformedFrame,
    read_client_id,
    skip_client_id,
    skip_tagged_fields,
)
from oncelog.wire.hot import PRODUCE_FLEXIBLE
from oncelog.wire.messages import is_loaded

PRODUCE = 0
API_VERSIONS = 18

# Largest request but Produce. Decoded it takes a hundred times as much memory, and time that others wait.
OTHER_REQUEST_BYTES = 4 * 2**20
READ_ASIDE_BYTES = 4096  # what kio reads of a larger one takes milliseconds: a thread does it
UNANSWERED_COMMITS = 256

Then = Callable[[Api, Any, Call], Any]


class Connection(asyncio.BufferedProtocol):
    def __init__(self, connections: Connections, endpoint: Endpoint) -> None:
        self._connections = connections
        self._broker = connections.broker
        self._metrics = self._broker.metrics
        self._most_bytes = self._broker.settings.socket_request_max_bytes
        self._turns = self._broker.turns
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._outgoing = Outgoing(self._broker)
        self._receiver = Receiver(connections, self)
        # Each call costs a small request a hundredth of its time, so asyncio calls the receiver itself.
        vars(self).update(get_buffer=self._receiver.get_buffer, buffer_updated=self._receiver.buffer_updated)
        self._go_on, self.stalled_since_ms = self._receiver.go_on, self._receiver.stalled_since_ms
        self._endpoint = endpoint
        self._apis = connections.apis
        self._producing: Producing = connections.producing
        self.client_host = "?"
        self._local_host = ""
        self.principal = ANONYMOUS
        self._rights: Rights = EVERY_RIGHT
        self._throttle: Throttle | None = None
        self.quotas_changed()
        self.active_ms = 0  # when a whole request last arrived or was answered
        self._pattern: Pattern | None = None  # of its last Produce request
        self._waiting: asyncio.Future[Any] | None = None
        self._verification: Verification | None = None  # of the next request
        self._look: Look | InTurns | None = None  # what was found in the next request, or done, before it is served
        self._commits = Unanswered(self._outgoing, self._look_at_commits)
        self._is_write_paused = False
        self._is_after_turn = False
        self._is_finishing = False
        self.is_serving = False
        self.is_closing = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else "?"
        self.principal = principal_of(transport)
        self._rights = self._broker.access.rights(self.principal, self.client_host)
        name = transport.get_extra_info("sockname")
        self._local_host = str(name[0]) if name else ""
        self.active_ms = self._broker.clock.now().monotonic_ms
        self._receiver.begin(self._transport)
        self._outgoing.begin(self._transport)
        if not self._connections.add(self):
            self.is_closing = True
            self._transport.abort()
            return
        slow_down(self._broker.quotas, self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closing = True
        self._connections.remove(self)
        if self._waiting is not None:
            self._turns.wait_first(self._waiting.cancel)  # many may hang up at once, and each may have begun much
            self._waiting = None
        if self._throttle is not None:
            self._throttle.free()
            self._throttle = None  # which points back at it: nobody would look for the two
        self._commits.drop()
        self._receiver.drop()
        self._outgoing.drop()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._outgoing.pause()

    def resume_writing(self) -> None:
        self._outgoing.resume()
        self._is_write_paused = False
        self._go_on()

    # Serving

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for us; if not, it is we who wait for the client."""
        return self._waiting is not None or bool(self._commits)

    @property
    def unread_since_ms(self) -> int | None:
        return self._outgoing.unread_since_ms

    @property
    def is_reading(self) -> bool:
        return self._receiver.is_reading

    @property
    def kept_bytes(self) -> int:
        return self._receiver.kept_bytes + int(self._transport.get_extra_info(KEPT_BYTES, 0))

    @property
    def write_buffer_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def is_held(self) -> bool:
        return (
            self._waiting is not None
            or self._is_write_paused
            or self._is_after_turn
            or self._is_finishing
            or self.is_closing
        )

    def may_serve(self, key: int, size: int) -> bool:
        if self.is_held():
            return False
        if size >= LARGE_FRAME_BYTES and key == PRODUCE and not self._broker.housekeeping.has_room(size):
            self._is_after_turn = True
            self._broker.housekeeping.wait_for_room(self.begin_turn)
            return False
        if key != PRODUCE and self._turns.is_over():
            self._end_turn()
            return False
        return not self._commits or (key == PRODUCE and len(self._commits) < UNANSWERED_COMMITS)

    def serve(self, buffer: bytearray, at: int, end: int) -> None:
        """Serve the whole frames between `at` and `end`, keep the rest, and write all answers at once."""
        now = self._broker.clock.now()
        producing = self._producing
        producing.rights, producing.principal = self._rights, self.principal
        self.is_serving = True
        is_held, others_wait = self.is_held(), bool(self._commits)  # none comes before one that is no Produce
        try:
            while end - at >= FRAME_HEAD_BYTES and not is_held:
                size, key, version, correlation_id = FRAME_HEAD.unpack_from(buffer, at)
                stop = at + SIZE_BYTES + size
                if stop > end or not REQUEST_HEAD_BYTES <= size <= self._most_bytes:
                    break  # what is no frame, `keep` refuses
                body = at + FRAME_HEAD_BYTES
                if key != PRODUCE:
                    if size > OTHER_REQUEST_BYTES:
                        raise MalformedFrame(f"a request of kind {key} of {size} bytes")
                    if producing:
                        self._commit()
                is_plain = key == PRODUCE and size < LARGE_FRAME_BYTES and not others_wait
                if not is_plain and not self.may_serve(key, size):
                    break
                if key == PRODUCE:
                    if not self._stage(buffer, body, stop, version, correlation_id, now):
                        break  # it holds the connection, and comes again
                    is_held = self._is_after_turn
                else:
                    self._handle(buffer, body, stop, key, version, correlation_id, now)
                    is_held = self.is_held()
                    producing.rights, producing.principal = self._rights, self.principal  # others had their turn
                at = stop
            if producing:
                self.active_ms = now.monotonic_ms
                self._commit()
            self._outgoing.send()
            self._receiver.keep(buffer, at, end)
        except MalformedFrame as error:
            self._give_up(str(error), None)
        except Exception as error:
            self._give_up("", error)
        finally:
            self.is_serving = False

    def _end_turn(self) -> None:
        self._is_after_turn = True
        self._turns.wait(self.begin_turn)

    def begin_turn(self) -> None:
        self._is_after_turn = False
        self._go_on()

    def _stage(self, buffer: bytearray, at: int, end: int, version: int, correlation_id: int, now: Now) -> bool:
        """Whether it was; if not, a thread looks into the request before, or it is staged in turns."""
        throttle = self._throttle
        if throttle is not None:
            throttle.begin()
        done: InTurns | None = None
        verdicts: Verdicts = {}
        if self._look is not None:
            look, self._look = self._look, None
            if isinstance(look, InTurns):
                done = look
            else:
                verdicts = look.verdicts(at)
        pattern = self._pattern
        found = pattern.records(buffer, at, end) if pattern is not None and pattern.version == version else None
        try:
            if (
                pattern is None
                or found is None
                or not self._producing.add_again(
                    pattern, buffer, at, found[0], found[1], correlation_id, now, verdicts
                )  # named one by one: a star would take as long as the call
            ):
                self._stage_unlike(buffer, at, end, version, correlation_id, now, verdicts, done)
        except (LookFirst, TurnsFirst, VerifyFirst) as first:
            self._begin_look(first.look, buffer)
            return False
        if throttle is not None:
            throttle.produced(buffer, at, end, now)
        self._verification = None
        if self._producing.is_turn_over and not self._is_after_turn:
            self._end_turn()
        return True

    def _stage_unlike(
        self,
        buffer: bytearray,
        at: int,
        end: int,
        version: int,
        correlation_id: int,
        now: Now,
        verdicts: Verdicts,
        done: InTurns | None,
    ) -> None:
        low, high = self._apis[PRODUCE].versions
        if not low <= version <= high:
            raise MalformedFrame(f"produce has no version {version} here")
        body = skip_client_id(buffer, at, end)
        if version >= PRODUCE_FLEXIBLE:
            body = skip_tagged_fields(buffer, body, end)
        self._pattern = self._producing.add(
            buffer, at, body, end, version, correlation_id, now, verdicts, done, self._verification
        )

    def _begin_look(self, look: Look | InTurns | Verification, buffer: bytearray) -> None:
        """Stand still until that is done with the next request; then it is served from the same bytes."""
        if buffer is self._connections.receive_buffer:
            look.keep()
        work: Any = self._broker.aside.run(look.run) if isinstance(look, Look) else look.run()
        waiting = asyncio.ensure_future(work if self._throttle is None else self._throttle.timed(work))
        self._waiting = waiting

        def finished(future: "asyncio.Future[None]") -> None:
            if self._waiting is not waiting:
                return
            self._waiting = None
            if future.cancelled() or future.exception() is not None:
                self._connections.log_failed(self.client_host, "a look into a request", future)
                self.close()
                return
            if isinstance(look, Verification):
                self._verification = look
            else:
                self._look = look
            self._go_on()

        waiting.add_done_callback(finished)

    def _commit(self) -> None:
        commit = self._producing.commit()
        if self._throttle is not None:
            commit = self._throttle.committed(commit)
        self._metrics.requests[PRODUCE] += len(commit.requests)
        self._commits.put(commit)
        if commit.must_close:
            self.close()

    def _give_up(self, reason: str, accident: Exception | None) -> None:
        """Close after a request that cannot be read, or after an accident. What was understood before is answered."""
        try:
            if self._producing:
                self._commit()
        except Exception as another:
            accident = accident or another
        if accident is None:
            self._refuse(reason)
        else:
            self._connections.log_unexpected(self.client_host, "a request", accident)
            self.close()

    def _look_at_commits(self) -> None:
        """A partition moved."""
        self._commits.look()
        self._outgoing.send()
        if self._is_finishing and not self._commits:
            self.close()
        self._go_on()

    def _handle(
        self, buffer: bytearray, at: int, end: int, key: int, version: int, correlation_id: int, now: Now
    ) -> None:
        api = self._apis.get(key)
        if api is None:
            raise MalformedFrame(f"there is no API {key} here")
        low, high = api.versions
        is_too_new = not low <= version <= high
        if is_too_new:
            if key != API_VERSIONS:
                raise MalformedFrame(f"{api.name} has no version {version} here")
            version = 0
        self._metrics.requests[key] += 1
        self.active_ms = now.monotonic_ms
        client_id, at = read_client_id(buffer, at, end)
        call = Call(
            self._broker,
            api.name,
            version,
            client_id,
            self.client_host,
            self._endpoint.name,
            now,
            correlation_id,
            self._local_host,
            self.principal,
            self._rights,
            None if self._throttle is None else self._throttle.spending(api.name, client_id),
        )
        if is_too_new:
            answer = too_new(call)
        else:
            request = read_fast(api, call.schema, buffer, at, end) if is_loaded(api.name, version) else None
            if request is None:
                body = bytes(memoryview(buffer)[at:end])
                if len(body) > READ_ASIDE_BYTES or not is_loaded(api.name, version):
                    self._wait_for(read_aside(self._broker, api, body, call), api, call, self._ask)
                    return
                request = read_by_kio(api.name, version, body)
            answer = self._ask(api, request, call)
        self._answer_with(answer, api, call)

    def _ask(self, api: Api, request: Any, call: Call) -> Any:
        try:
            return handled(api, request, call)
        except Exception as error:
            return self._answer_of(error, api, call)

    def _answer_of(self, error: Exception, api: Api, call: Call) -> Any:
        try:
            return refused(error, api, call, partial(self._connections.log_unexpected, self.client_host))
        except NoAnswer as why:
            if str(why):
                self._refuse(str(why))
            self.close()
            return None

    def _answer_with(self, answer: Any, api: Api, call: Call) -> None:
        if isinstance(answer, Pending):
            self._wait_for(answer.rest, api, call)
        elif asyncio.isfuture(answer):
            self._wait_for(answer, api, call)
        else:
            self._answer(answer, call)

    def _wait_for(self, work: Awaitable[Any], api: Api, call: Call, then: Then | None = None) -> None:
        """Wait for the answer, or for what `then` makes one of."""
        waiting = asyncio.ensure_future(work)
        self._waiting = waiting
        finished = partial(self._finished, api, call, then)
        if waiting.done():
            finished(waiting)
        else:
            waiting.add_done_callback(finished)

    def _finished(self, api: Api, call: Call, then: Then | None, future: asyncio.Future[Any]) -> None:
        if self._waiting is not future:
            drop_answer(self._broker, future)
            return
        if then is not None and self._turns.is_over():
            self._turns.wait(partial(self._finished, api, call, then, future))  # many may have been read together
            return
        self._waiting = None
        if future.cancelled():
            self.close()
            return
        error = future.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        self.active_ms = self._broker.clock.now().monotonic_ms
        try:
            if error is not None:
                result = self._answer_of(error, api, call)
            else:
                result = future.result() if then is None else then(api, future.result(), call)
            self._answer_with(result, api, call)
        except Exception as unexpected:
            self._connections.log_unexpected(self.client_host, api.name, unexpected)
            self.close()
        self._outgoing.send()
        self._go_on()

    def _answer(self, answer: Any, call: Call) -> None:
        if answer is None:
            return
        if call.spending is not None:
            answer = call.spending.answered(answer, call)
        if type(answer) is Encoded:
            try:
                self._outgoing.put_all(answer)
            except LogStorageError as error:
                self._refuse(str(error))  # its length is promised already, so there is no other way to say it
            finally:
                self._broker.memory.unsent.give_back(answer.held_bytes)
        else:
            body = call.schema.encode(answer, call.correlation_id)
            self._outgoing.put(SIZE.pack(len(body)) + body)
        if self._outgoing.is_full:
            self._outgoing.send()

    def rights_changed(self) -> None:
        """The rights have changed: the decision about the last request must be made again."""
        self._pattern = None

    def quotas_changed(self) -> None:
        """Quotas have changed: a connection that stands still is judged anew by the next request."""
        self._throttle = throttle_of(self._broker.quotas, self._broker.clock, self, self._throttle)

    def mute(self) -> None:
        self._is_after_turn = True
        self._receiver.pause()

    def unmute(self) -> None:
        self._turns.wait(self.begin_turn)  # many may have waited for the same moment

    # Closing

    def _refuse(self, reason: str) -> None:
        self._connections.log_refused(self.client_host, reason)
        self.close()

    def finish(self) -> None:
        """Serve nothing more, and close when what was appended for this client is answered."""
        self._is_finishing = True
        if not self._commits:
            self.close()

    def close(self) -> None:
        """Close when everything answered so far has been sent."""
        if not self.is_closing:
            self._outgoing.send()
            self.is_closing = True
            self._transport.close()

    def abort(self) -> None:
        self.is_closing = True
        self._transport.abort()
