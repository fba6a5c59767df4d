"""A connection whose client must prove who it is before anything else is served, and again when that proof's time ends.

What may be asked when is the table of `security/gate.py`. Frames are taken one by one until the gate is open; then the
rest of what was received is served as on any connection. A client that is not known yet can make the server hold no
more than a small frame, and one as large behind it.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from oncelog.clock import Now
from oncelog.security import brokers
from oncelog.security.gate import (
    API_VERSIONS,
    IT_IS_OVER,
    NOT_BETWEEN,
    NOT_YET,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Gate,
    State,
    Verdict,
    failed,
    lifetime_ms,
    other_principal,
)
from oncelog.security.scram import Refused
from oncelog.server.api import Api
from oncelog.server.call import Call, Encoded
from oncelog.server.connection import Connection, Then
from oncelog.server.connections import Connections
from oncelog.server.eagerly import begun
from oncelog.server.endpoints import Endpoint
from oncelog.server.errors import ErrorCode
from oncelog.server.guard import BARRED
from oncelog.server.proofs import Proof
from oncelog.wire.frames import (
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    REQUEST_HEAD_BYTES,
    SIZE,
    SIZE_BYTES,
    MalformedFrame,
    read_client_id,
)
from oncelog.wire.messages import is_loaded, schema

FETCH = 1
AHEAD_S = 0.002
NO_VERSION = -1  # of the call by which a token came that was in no request


class GuardedConnection(Connection):
    def __init__(self, connections: Connections, endpoint: Endpoint) -> None:
        self._gate = Gate()
        super().__init__(connections, endpoint)
        settings = self._broker.settings.of_listener(endpoint.name)
        self._guard = connections.guard
        self._mechanisms = settings.sasl_enabled_mechanisms
        self._most_frame_bytes = settings.sasl_server_max_receive_size
        self._session_ms = settings.connections_max_reauth_ms
        self._delay_ms = settings.connection_failed_authentication_delay_ms
        self._proof: Proof | None = None
        self._is_free = False  # open, and so for a while: nothing is asked
        self._end: asyncio.TimerHandle | None = None  # of that while
        self._awaited = -1  # the kind of request that is being answered, or was last

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self.is_closing:
            self._guard.strangers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.strangers.discard(self)
        self._forget_end()
        if self._waiting is not None and self._gate.principal is None:
            self._waiting.cancel()  # guessers hang up by the hundred, and have begun little: it takes no turn
            self._waiting = None
        super().connection_lost(exc)

    def turn_away(self, why: str) -> None:
        self._broker.metrics.strangers_closed += 1
        self._connections.log_refused(self.client_host, why)
        self.abort()

    def quotas_changed(self) -> None:
        """Quotas have changed. A stranger has none: all strangers would share one, and wait for each other. Nor has a
        broker: clients of all users wait for what it asks."""
        principal = self._gate.principal
        if principal is not None and not brokers.is_broker(principal):
            super().quotas_changed()

    # Before it is open

    def serve(self, buffer: bytearray, at: int, end: int) -> None:
        if not self._is_free:
            now = self._broker.clock.now()
            if not self._gate.is_open(now.monotonic_ms):
                at = self._serve_gated(buffer, at, end, now)
                if at < 0:
                    return
        super().serve(buffer, at, end)

    def _serve_gated(self, buffer: bytearray, at: int, end: int, now: Now) -> int:
        """Serve up to the proof; returns where what is behind it begins, -1 where the gate is not open yet."""
        gate = self._gate
        self.is_serving = True
        try:
            while not gate.is_open(now.monotonic_ms) and not self.is_held():
                stop = self._end_of_frame(buffer, at, end, now)
                if stop is None:
                    break
                if self._turns.is_over():
                    self._end_turn()
                    break
                self._take(buffer, at, stop, now)
                at = stop
            if gate.is_open(now.monotonic_ms):
                return at
            if end - at > SIZE_BYTES + self._most_frame_bytes:
                raise MalformedFrame("it sends much before it has proven who it is")
            self._outgoing.send()
            self._receiver.keep_unserved(buffer, at, end)
        except MalformedFrame as error:
            self._give_up(str(error), None)
        except Exception as error:
            self._give_up("", error)
        finally:
            self.is_serving = False
        return -1

    def _end_of_frame(self, buffer: bytearray, at: int, end: int, now: Now) -> int | None:
        if end - at < SIZE_BYTES:
            return None
        size: int = SIZE.unpack_from(buffer, at)[0]
        least = 0 if self._gate.is_raw else REQUEST_HEAD_BYTES
        if not least <= size <= self._most_frame_bytes:
            if self._gate.state(now.monotonic_ms) is State.ENDED:
                raise MalformedFrame(self._why_ended())
            raise MalformedFrame(f"a frame of {size} bytes before it has proven who it is")
        stop = at + SIZE_BYTES + size
        return stop if stop <= end else None

    def _take(self, buffer: bytearray, at: int, stop: int, now: Now) -> None:
        if self._gate.is_raw:
            self._take_raw(bytes(memoryview(buffer)[at + SIZE_BYTES : stop]), now)
            return
        _size, key, version, correlation_id = FRAME_HEAD.unpack_from(buffer, at)
        body = at + FRAME_HEAD_BYTES
        verdict = self._gate.verdict(key, now.monotonic_ms)
        if verdict is Verdict.CLOSE:
            raise MalformedFrame(self._why_closed(key, now.monotonic_ms))
        if verdict is Verdict.REFUSE:
            self._refuse_between(buffer, body, stop, key, version, correlation_id, now)
            return
        if verdict is Verdict.AGAIN:
            self._begin_again(now)
        if key == API_VERSIONS:
            self._gate.versions_asked()
        super()._handle(buffer, body, stop, key, version, correlation_id, now)

    def _why_closed(self, key: int, now_ms: int) -> str:
        if self._gate.state(now_ms) is State.ENDED:
            return self._why_ended()
        self._broker.metrics.authentications_failed += 1
        return NOT_YET.format(_named(self._apis.get(key), key))

    def _why_ended(self) -> str:
        self._broker.metrics.sessions_ended += 1
        return IT_IS_OVER

    def _handle(
        self, buffer: bytearray, at: int, end: int, key: int, version: int, correlation_id: int, now: Now
    ) -> None:
        """Handle a request of a connection that is open."""
        if self._gate.begins_again(key, now.monotonic_ms):
            self._begin_again(now)
            self._end_turn()  # what stands behind the handshake is taken by the gate
        super()._handle(buffer, at, end, key, version, correlation_id, now)

    def _begin_again(self, now: Now) -> None:
        self._gate.begin_again(now.monotonic_ms)
        self._is_free = False
        self._forget_end()
        self._guard.strangers.add(self)

    def _call(self, api: str, version: int, client_id: str | None, correlation_id: int, now: Now) -> Call:
        return Call(
            self._broker,
            api,
            version,
            client_id,
            self.client_host,
            self._endpoint.name,
            now,
            correlation_id,
            self._local_host,
            self.principal,
            self._rights,
        )

    def _refuse_between(
        self, buffer: bytearray, at: int, end: int, key: int, version: int, correlation_id: int, now: Now
    ) -> None:
        api = self._apis.get(key)
        if api is None or not api.versions[0] <= version <= api.versions[1]:
            raise MalformedFrame(NOT_BETWEEN.format(_named(api, key)))
        client_id, _ = read_client_id(buffer, at, end)
        call = self._call(api.name, version, client_id, correlation_id, now)
        self._answer_with(begun(self._refused_between(api, call)), api, call)

    async def _refused_between(self, api: Api, call: Call) -> Any:
        why = NOT_BETWEEN.format(_named(api, api.key))
        self._fail(why)
        if not is_loaded(api.name, call.version):
            await self._broker.aside.run(schema, api.name, call.version)
        await self._delay(call.now)
        return call.schema.refusal(ErrorCode.illegal_sasl_state, why)

    # The proof

    def _ask(self, api: Api, request: Any, call: Call) -> Any:
        state = self._gate.state(call.now.monotonic_ms)
        if state is State.OPEN:
            return super()._ask(api, request, call)
        if state is State.ENDED:  # it came when the time was over and nobody had looked yet
            self._refuse(self._why_ended())
            return None
        if api.key == SASL_HANDSHAKE:
            return begun(self._shake_hands(request.mechanism, call))
        if api.key == SASL_AUTHENTICATE:
            return begun(self._prove(bytes(request.auth_bytes), call))
        assert api.key == API_VERSIONS
        answer = super()._ask(api, request, call)
        if answer is not None and answer.error_code is ErrorCode.none:
            self._gate.versions_told()
        return answer

    async def _shake_hands(self, mechanism: str, call: Call) -> Any:
        code = ErrorCode.none
        # Nobody guesses the secret of brokers, and who guesses passwords at their host must not keep them apart.
        is_looked_at = self._gate.is_again or self._is_of_brokers(mechanism)
        if not is_looked_at and self._guard.is_barred(self.client_host):
            self._gate.fail()
            self._connections.log_refused(self.client_host, BARRED)
            await self._delay(call.now)
            return None
        if not self._is_enabled(mechanism):
            code = ErrorCode.unsupported_sasl_mechanism
            self._fail("it asks for a mechanism that is not enabled")
            await self._delay(call.now)
        elif self._gate.begin(mechanism, call.version):
            self._proof = self._guard.begin(mechanism, self._endpoint.name)
        return call.new("SaslHandshakeResponse", error_code=code, mechanisms=self._mechanisms)

    def _is_enabled(self, mechanism: str) -> bool:
        return mechanism in self._mechanisms or self._is_of_brokers(mechanism)

    def _is_of_brokers(self, mechanism: str) -> bool:
        return mechanism == brokers.MECHANISM and self._guard.knows_brokers

    def _take_raw(self, token: bytes, now: Now) -> None:
        api = self._apis[SASL_AUTHENTICATE]
        call = self._call(api.name, NO_VERSION, None, 0, now)
        self._answer_with(begun(self._prove(token, call)), api, call)

    async def _prove(self, message: bytes, call: Call) -> Any:
        proof = self._proof
        assert proof is not None
        code, told, answer, session_ms = ErrorCode.none, None, b"", 0
        was_refused = proof.is_refused
        try:
            answer = await proof.evaluate(message)
            if proof.is_over:
                session_ms = self._open(proof)
            elif proof.is_refused:
                self._guard.count_failure(self.client_host)
        except Refused as refused:
            code = ErrorCode.sasl_authentication_failed
            told = refused.told or failed(self._gate.mechanism, is_again=self._gate.is_again)
            if not was_refused:
                self._guard.count_failure(self.client_host)
            self._fail(str(refused), proof.name)
            await self._delay(call.now)
        except Exception:
            self._gate.fail()
            raise
        if call.version == NO_VERSION:
            return None if told is not None else Encoded([SIZE.pack(len(answer)) + answer])
        return call.new(
            "SaslAuthenticateResponse",
            error_code=code,
            error_message=told,
            auth_bytes=answer,
            session_lifetime=timedelta(milliseconds=session_ms),
        )

    def _open(self, proof: Proof) -> int:
        """The time for which the proof counts, as the client is told it. Raises Refused."""
        gate, principal, now = self._gate, proof.principal, self._broker.clock.now()
        if gate.principal is not None and principal != gate.principal:
            why = other_principal(gate.principal, principal)
            raise Refused(why, why)
        expires_in_ms = None if proof.expires_wall_ms is None else proof.expires_wall_ms - now.wall_ms
        session_ms = lifetime_ms(0 if brokers.is_broker(principal) else self._session_ms, expires_in_ms)
        self._proof = None
        gate.open(principal, None if session_ms is None else now.monotonic_ms + session_ms)
        self._is_free = True
        if session_ms is not None and not self.is_closing:  # it may be gone since the proof was looked at
            self._end = asyncio.get_running_loop().call_later(session_ms / 1000, self.look_at_end)
        self.principal = principal
        self._rights = self._broker.access.rights(principal, self.client_host)
        self.rights_changed()
        self.quotas_changed()
        self._guard.strangers.discard(self)
        self._broker.metrics.authentications += 1
        return session_ms or 0

    def look_at_end(self) -> None:
        """The time of its proof may be over: from now on each request asks, and no Fetch that waits gets records."""
        self._is_free = False
        if self._waiting is None or self._awaited != FETCH:
            return
        if self._gate.state(self._broker.clock.now().monotonic_ms) is State.ENDED:
            self._refuse(self._why_ended())
        else:  # the loop's clock is a little ahead
            self._end = asyncio.get_running_loop().call_later(AHEAD_S, self.look_at_end)

    def _wait_for(self, work: Awaitable[Any], api: Api, call: Call, then: Then | None = None) -> None:
        self._awaited = api.key
        super()._wait_for(work, api, call, then)

    def _forget_end(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _fail(self, why: str, name: str = "") -> None:
        self._gate.fail()
        self._guard.say_failure(self.client_host, self._gate.mechanism, name, why)

    async def _delay(self, since: Now) -> None:
        """Wait, so that the time of a failure says nothing, and guessing is slow."""
        left_ms = since.monotonic_ms + self._delay_ms - self._broker.clock.now().monotonic_ms
        if left_ms > 0:
            await asyncio.sleep(left_ms / 1000)

    def _answer(self, answer: Any, call: Call) -> None:
        super()._answer(answer, call)
        if self._gate.has_failed:
            self.close()


def _named(api: Api | None, key: int) -> str:
    return str(key) if api is None else api.name.upper()
