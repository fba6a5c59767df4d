"""One client's connection: requests in, answers out, in the order of the requests.

Produce requests that arrived together are staged one by one and written by one commit, and all answers of a chunk leave
by one write. How bytes become frames, and which wait, is in `receiving.py`.

A connection stands still ("held") while a request waits (long poll, join), while the client does not take its answers,
while others have their turn, and while a request of another kind stands behind produce requests whose answers wait for
the disk.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast

from oncelog.clock import Now
from oncelog.log.errors import LogStorageError
from oncelog.server.api import Api
from oncelog.server.api_listing import listed_apis
from oncelog.server.call import ANONYMOUS, AnswerTooLarge, Call, Encoded
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.produce import TURN_MS, Commit, Producing
from oncelog.server.produce_place import Place
from oncelog.server.receiving import Receiving
from oncelog.server.sending import Answer, Straight, read_all
from oncelog.wire.frames import (
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    SIZE,
    SIZE_BYTES,
    MalformedFrame,
    read_client_id,
    skip_client_id,
    skip_tagged_fields,
)
from oncelog.wire.hot import PRODUCE_FLEXIBLE
from oncelog.wire.messages import Schema, schema

if TYPE_CHECKING:
    from oncelog.log.slices import Slice
    from oncelog.server.connections import Connections

PRODUCE = 0
API_VERSIONS = 18

# Largest request but Produce. Decoded it takes a hundred times as much memory, and time that others wait.
OTHER_REQUEST_BYTES = 4 * 2**20
UNANSWERED_COMMITS = 256
WRITE_HIGH_BYTES = 256 * 1024
TURN_REQUESTS = 64  # other requests than Produce that are served before other connections have their turn
JOIN_BELOW_BYTES = 64 * 1024  # answers up to this size are copied together for one write


class Connection(Receiving):
    def __init__(self, connections: "Connections", listener: str) -> None:
        super().__init__(connections)
        self._broker = connections.broker
        self._listener = listener
        self._apis = connections.apis
        self._producing: Producing = connections.producing
        self.client_host = "?"
        self._local_host = ""
        self._straight: Straight | None = None
        self.principal = ANONYMOUS
        self.active_ms = 0  # when a whole request last arrived or was answered
        self._place: Place | None = None  # where its last Produce request went
        self._waiting: asyncio.Future[Any] | None = None
        self._commits: deque[Commit] = deque()  # answers that wait for the high watermark; later ones wait behind
        self._out: list[Answer] = []
        self._out_bytes = 0
        self._unsent_bytes = 0
        self._is_write_paused = False
        self.unread_since_ms: int | None = None
        self._is_after_turn = False
        self._is_finishing = False
        self.is_closing = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else "?"
        name = transport.get_extra_info("sockname")
        self._local_host = str(name[0]) if name else ""
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self.active_ms = self._broker.clock.now().monotonic_ms
        if not self._connections.add(self):
            self.is_closing = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closing = True
        self._connections.remove(self)
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        for commit in self._commits:
            for partition in commit.awaited:
                partition.waiters.discard(self._look_at_commits)
        self._commits.clear()
        self._forget_unsent()
        self._drop_received()
        self._out = []
        if self._straight is not None:
            self._straight.let_go()
            self._straight = None

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self.unread_since_ms = self._broker.clock.now().monotonic_ms
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._connections.unsent.held_bytes += self._unsent_bytes

    def resume_writing(self) -> None:
        self._forget_unsent()
        self._is_write_paused = False
        self.unread_since_ms = None
        self._go_on()

    def _forget_unsent(self) -> None:
        self._connections.unsent.held_bytes -= self._unsent_bytes
        self._unsent_bytes = 0

    # Serving

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for us; if not, it is we who wait for the client."""
        return self._waiting is not None or bool(self._commits)

    def _is_held(self) -> bool:
        return (
            self._waiting is not None
            or self._is_write_paused
            or self._is_after_turn
            or self._is_finishing
            or self.is_closing
        )

    def _may_serve(self, key: int) -> bool:
        if self._is_held():
            return False
        return not self._commits or (key == PRODUCE and len(self._commits) < UNANSWERED_COMMITS)

    def _serve(self, buffer: bytearray, at: int, end: int) -> None:
        """Serve the whole frames between `at` and `end`, keep the rest, and write all answers at once."""
        now = self._broker.clock.now()
        producing = self._producing
        others = 0
        self._is_serving = True
        try:
            while end - at >= SIZE_BYTES and not self._is_held():
                size = self._frame_bytes(buffer, at)
                start = at + SIZE_BYTES
                stop = start + size
                if stop > end:
                    break
                key, version, correlation_id = REQUEST_HEAD.unpack_from(buffer, start)
                body = start + REQUEST_HEAD_BYTES
                if key != PRODUCE:
                    if size > OTHER_REQUEST_BYTES:
                        raise MalformedFrame(f"a request of kind {key} of {size} bytes")
                    if producing:
                        self._commit()
                if self._commits and not self._may_serve(key):
                    break
                if key == PRODUCE:
                    self._stage(buffer, body, stop, version, correlation_id, now)
                    is_turn_over = producing.is_turn_over
                else:
                    self._handle(buffer, body, stop, key, version, correlation_id, now)
                    others += 1
                    took_ms = self._broker.clock.now().monotonic_ms - now.monotonic_ms
                    is_turn_over = others >= TURN_REQUESTS or took_ms >= TURN_MS
                if is_turn_over:
                    self._end_turn()
                at = stop
                self.active_ms = now.monotonic_ms
            if producing:
                self._commit()
            self._send()
            self._keep(buffer, at, end)
        except MalformedFrame as error:
            self._give_up(str(error), None)
        except Exception as error:
            self._give_up("", error)
        finally:
            self._is_serving = False

    def _end_turn(self) -> None:
        self._is_after_turn = True
        asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_after_turn = False
        self._go_on()

    def _stage(self, buffer: bytearray, at: int, end: int, version: int, correlation_id: int, now: Now) -> None:
        self._metrics.requests[PRODUCE] += 1
        place = self._place
        if place is not None and place.version == version:
            found = place.records(buffer, at, end)
            if found is not None and self._producing.add_again(place, buffer, *found, correlation_id, now):
                return
        low, high = self._apis[PRODUCE].versions
        if not low <= version <= high:
            raise MalformedFrame(f"produce has no version {version} here")
        body = skip_client_id(buffer, at, end)
        if version >= PRODUCE_FLEXIBLE:
            body = skip_tagged_fields(buffer, body, end)
        self._place = self._producing.add(buffer, at, body, end, version, correlation_id, now)

    def _commit(self) -> None:
        commit = self._producing.commit()
        if self._commits or not commit.is_settled():
            self._commits.append(commit)
            for partition in commit.awaited:
                partition.waiters.add(self._look_at_commits)
        else:
            for frame in commit.frames():
                self._put(frame)
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
        """A partition moved: send what has become true, from the oldest on."""
        while self._commits and self._commits[0].is_settled():
            for frame in self._commits.popleft().frames():
                self._put(frame)
        if self._commits:
            for partition in self._commits[0].awaited:
                partition.waiters.add(self._look_at_commits)
        self._send()
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
        spoken = schema(api.name, version)
        client_id, at = read_client_id(buffer, at, end)
        call = Call(
            self._broker,
            spoken,
            version,
            client_id,
            self.client_host,
            self._listener,
            now,
            correlation_id,
            self._local_host,
            self.principal,
        )
        if is_too_new:
            answer = call.schema.refusal(ErrorCode.unsupported_version, None)
            answer = replace(answer, api_keys=listed_apis(call))
        else:
            answer = self._ask(api, _read_request(api, spoken, buffer, at, end), call)
        if type(answer) is not Encoded and isawaitable(answer):
            self._wait_for(answer, api, call)
        else:
            self._answer(answer, call)

    def _ask(self, api: Api, request: Any, call: Call) -> Any:
        assert api.handle is not None
        try:
            return api.handle(request, call)
        except Exception as error:
            return self._answer_of(error, api, call)

    def _answer_of(self, error: Exception, api: Api, call: Call) -> Any:
        """A refusal that concerns the whole request, or an accident: as an answer, where the API has room for one."""
        if isinstance(error, AnswerTooLarge):
            self._refuse(f"{api.name} asks for {error}")
            return None
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            self._connections.log_unexpected(self.client_host, api.name, error)
            code, message = ErrorCode.unknown_server_error, None
        answer = call.schema.refusal(code, message)
        if answer is None:
            self.close()
        return answer

    def _wait_for(self, answer: Awaitable[Any], api: Api, call: Call) -> None:
        waiting = asyncio.ensure_future(answer)
        self._waiting = waiting

        def finished(future: asyncio.Future[Any]) -> None:
            if self._waiting is not waiting:
                return
            self._waiting = None
            if future.cancelled():
                self.close()
                return
            error = future.exception()
            if error is None:
                result = future.result()
            elif isinstance(error, Exception):
                result = self._answer_of(error, api, call)
            else:
                raise error
            self.active_ms = self._broker.clock.now().monotonic_ms
            try:
                self._answer(result, call)
            except Exception as unexpected:
                self._connections.log_unexpected(self.client_host, api.name, unexpected)
                self.close()
            self._send()
            self._go_on()

        if waiting.done():
            finished(waiting)
        else:
            waiting.add_done_callback(finished)

    def _answer(self, answer: Any, call: Call) -> None:
        if answer is None:
            return
        if type(answer) is Encoded:
            self._put_all(answer)
        else:
            body = call.schema.encode(answer, call.correlation_id)
            self._put(SIZE.pack(len(body)) + body)
        if self._out_bytes > WRITE_HIGH_BYTES:
            self._send()  # at once, for only then it is known whether the client takes it

    # Sending and closing

    def _put(self, answer: Answer) -> None:
        self._out.append(answer)
        self._out_bytes += len(answer)

    def _put_all(self, answer: Encoded) -> None:
        buffers = cast("Sequence[Answer]", answer.buffers)
        if answer.has_slices:
            try:
                buffers = self._send_slices(answer.buffers)
            except LogStorageError as error:
                self._refuse(str(error))  # its length is promised already, so there is no other way to say it
                return
        for each in buffers:
            self._put(each)

    def _send_slices(self, buffers: "Sequence[Answer | Slice]") -> list[Answer]:
        """What remains of an answer when the socket has taken what it takes at once; nothing if it may not yet."""
        self._send()
        transport = self._transport
        if transport.is_closing() or transport.get_write_buffer_size():
            return read_all(buffers)
        if self._straight is None:
            self._straight = Straight.past(transport)
        if self._straight is None or not self._straight.pace.is_straight(sum(map(len, buffers))):
            return read_all(buffers)
        sent_bytes, left = self._straight.send(buffers)
        self._metrics.bytes_sent += sent_bytes
        return left

    def _send(self) -> None:
        out = self._out
        if not out:
            return
        self._out = []
        size, self._out_bytes = self._out_bytes, 0
        self._metrics.bytes_sent += size
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= JOIN_BELOW_BYTES:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

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
            self._send()
            self.is_closing = True
            self._transport.close()

    def abort(self) -> None:
        self.is_closing = True
        self._transport.abort()


def _read_request(api: Api, spoken: Schema, buffer: bytearray, at: int, end: int) -> Any:
    if spoken.has_flexible_header:
        at = skip_tagged_fields(buffer, at, end)
    if api.read is not None:
        request = api.read(buffer, at, end, spoken.version)
        if request is not None:
            return request
    try:
        request, _ = spoken.read(bytes(memoryview(buffer)[at:end]), 0)
    except Exception as error:  # whatever a reader trips over, it was the client's bytes
        raise MalformedFrame(f"{spoken.name} request: {type(error).__name__} {error}") from None
    return request
