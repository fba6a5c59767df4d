"""TLS between a socket's transport and a connection: a protocol to the one, and to the other the transport.

asyncio and uvloop have the same, without the bounds that a server needs whom nobody knows yet: theirs keep 256 KB for
each connection, encrypt an answer of any size at once, and then say of none of it that it has not left. Here what
arrives lies in a buffer of all connections until it is decrypted into the receiver's own; an answer is encrypted in
pieces, as the client takes them; and a handshake, of which a step takes up to a millisecond of the processor, goes on
in turns with all other work, as does what arrives in very many records. Who is not done with the handshake is a
stranger (`strangers.py`).
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

from oncelog.server.connections import Connections
from oncelog.server.principal import HAS_KEPT, KEPT_BYTES, PRINCIPAL
from oncelog.server.receiver import HELD_BYTES
from oncelog.server.tls import Refused, Tls

HANDSHAKE_BYTES: Final = 16 * 1024  # read at a time
MOST_HANDSHAKE_BYTES: Final = 40 * 1024  # of a client's: two hundred certificates took OpenSSL tens of milliseconds
FED_BYTES: Final = 32 * 1024  # given to OpenSSL at a time; more than one record, so there must be something in it
PIECE_BYTES: Final = 32 * 1024  # encrypted and written at a time: meanwhile the client decrypts the one before
SMALL_BYTES: Final = 512  # decrypted at once, however many others are there; a piece of new keys takes 18 ms
MOST_AT_ONCE_BYTES: Final = 2 * 2**20  # encrypted in one step, which takes a millisecond or two

NOTHING: Final = memoryview(b"")
NEW_KEYS: Final = "it asks for new keys again and again"
_PLAIN: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "UNKNOWN_PROTOCOL",
    "PACKET_LENGTH_TOO_LONG",
)


class Inner(Protocol):
    """The connection that is served."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def get_buffer(self, sizehint: int) -> Any: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def is_held(self) -> bool: ...


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    def __init__(self, connections: Connections, tls: Tls, new_inner: Callable[[], Inner]) -> None:
        super().__init__()
        self._connections = connections
        self._turns = connections.broker.turns
        self._tls = tls
        self._new_inner = new_inner
        self._shared = connections.encrypted_view
        self._below: asyncio.Transport = cast(asyncio.Transport, None)
        self._incoming: ssl.MemoryBIO = cast(ssl.MemoryBIO, None)
        self._outgoing: ssl.MemoryBIO = cast(ssl.MemoryBIO, None)
        self._ssl: ssl.SSLObject | None = None  # made when the client has sent something
        self._inner: Inner | None = None  # made when the handshake is over
        self.client_host = "?"
        self._principal: str | None = None
        self._encrypted = NOTHING  # of what has just arrived
        self._handshake_bytes = 0
        self._kept = b""  # encrypted, of what arrived while nothing may be read
        self._backlog: deque[memoryview] = deque()  # to be encrypted
        self._backlog_bytes = 0
        self._is_stepping = False  # or waits for its turn
        self._is_read_paused = False
        self._is_below_paused = False
        self._is_decrypting = False
        self._barren_bytes = 0  # taken by OpenSSL since it last had something for the connection
        self._is_barren = False  # though it was asked
        self._is_after_turn = False
        self._is_over = False
        self._is_write_paused = False  # below
        self._is_inner_paused = False
        self._is_writing = False
        self._is_closing = False
        self._has_said_goodbye = False  # nothing can be encrypted behind it
        self._is_gone = False

    # The protocol of the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else "?"
        if self._connections.may_begin(self.client_host):
            self._connections.shaking_hands.add(self)
            self._connections.guard.strangers.add(self)
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = self._is_gone = True
        self._end_handshake()
        inner, self._inner = self._inner, None
        self._kept = b""
        self._backlog.clear()
        self._backlog_bytes = 0
        if inner is not None:
            inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        inner = self._inner
        if inner is None:
            return self._shared[:HANDSHAKE_BYTES]
        return self._shared[:HELD_BYTES] if inner.is_held() else self._shared

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        if self._inner is not None and not self._is_read_paused and not self._kept:
            if nbytes <= SMALL_BYTES or not self._turns.is_over():
                self._decrypt(self._shared[:nbytes])
                return
            self._await_turn()
        self._kept += self._shared[:nbytes]
        if self._inner is None and not self._is_stepping:
            self._is_stepping = True
            if self._turns.is_over():
                self._turns.wait(self._step)
            else:
                self._step()
        self._pause_or_resume()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        if not self._is_writing:
            self._tell_paused()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._go_on_writing()

    # The handshake

    def _step(self) -> None:
        self._is_stepping = False
        if self._is_closing:
            return
        if self._ssl is None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._ssl = self._tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        kept, self._kept = self._kept, b""
        self._handshake_bytes += len(kept)
        if self._handshake_bytes > MOST_HANDSHAKE_BYTES:
            self._fail(f"it sends more than {MOST_HANDSHAKE_BYTES:,} bytes in its TLS handshake")
            return
        self._incoming.write(kept)
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._below.write(self._outgoing.read())
            self._pause_or_resume()
        except (ssl.SSLError, ValueError) as error:
            self._below.write(self._outgoing.read())  # why, for the client
            self._fail(why_failed(error))
        else:
            self._begin_serving(self._ssl)

    def _begin_serving(self, established: ssl.SSLObject) -> None:
        self._end_handshake()
        der = established.getpeercert(binary_form=True)
        if der is not None:
            try:
                self._principal = f"User:{self._tls.user(der)}"
            except Refused as refused:
                self._fail(f"its certificate is of nobody here: {refused}")
                return
        self._below.write(self._outgoing.read())
        self._inner = inner = self._new_inner()
        inner.connection_made(self)
        if not self._is_closing:
            self._decrypt(NOTHING)  # what came behind the handshake is in OpenSSL's hands

    def _fail(self, reason: str) -> None:
        self._end_handshake()
        if not self._is_closing:
            self._is_closing = True
            self._connections.log_refused(self.client_host, reason)
            self._below.close()

    def turn_away(self, why: str) -> None:
        self._end_handshake()
        if not self._is_closing:
            self._connections.log_refused(self.client_host, why)
            self.abort()

    def _end_handshake(self) -> None:
        self._connections.shaking_hands.discard(self)
        self._connections.guard.strangers.discard(self)

    # Receiving

    def _decrypt(self, data: memoryview) -> None:
        """Into the receiver's buffer, as much at a time as that takes; the rest waits where reading is paused."""
        incoming, established = self._incoming, self._ssl
        assert established is not None
        self._is_decrypting = True
        self._encrypted = data
        try:
            while self._encrypted or incoming.pending or established.pending():
                inner = self._inner
                if inner is None or self._is_read_paused or self._is_closing or self._is_after_turn:
                    break
                filled = self._fill(established, inner.get_buffer(-1))
                if filled:
                    inner.buffer_updated(filled)
                if self._is_over:
                    self.close()
                elif self._asks_for_keys and not self._is_closing:
                    self._refuse(NEW_KEYS)  # each takes as long as a small request, and none is needed so soon
        except ssl.SSLError as error:  # what arrived was not encrypted by whom the handshake was with
            self._break(error)
        finally:
            self._is_decrypting = False
        self._kept = b"" if self._is_closing else bytes(self._encrypted)
        self._encrypted = NOTHING
        self._pause_or_resume()

    def _fill(self, established: ssl.SSLObject, buffer: memoryview) -> int:
        """Fill the buffer; the number of bytes. The buffer is not kept: its owner may want to make it larger."""
        incoming, data = self._incoming, self._encrypted
        filled, room = 0, len(buffer)
        while filled < room:
            if incoming.pending or established.pending():
                try:
                    read = cast(int, established.read(room - filled, buffer[filled:] if filled else buffer))
                except ssl.SSLWantReadError:
                    self._is_barren = self._barren_bytes >= FED_BYTES
                    continue  # OpenSSL has all of it, and waits for the rest of a record
                if not read:
                    self._is_over = True  # the client says that nothing more comes
                    break
                filled += read
                self._barren_bytes = 0
            elif not data or (len(data) < len(self._encrypted) and self._must_stop()):
                break
            else:
                taken = incoming.write(data[:FED_BYTES])
                self._barren_bytes += taken
                data = data[taken:]
        self._encrypted = data
        return filled

    @property
    def _asks_for_keys(self) -> bool:
        """Whether it asks for keys by KeyUpdate, which OpenSSL answers without us: more of it than one record takes,
        and nothing else."""
        return self._is_barren or self._outgoing.pending >= FED_BYTES

    def _must_stop(self) -> bool:
        """Whether to stop in the middle of what arrived. Records may be very small, and each takes OpenSSL as long as a
        large one."""
        if self._turns.is_over():
            self._await_turn()
        return self._is_after_turn or self._asks_for_keys

    def _await_turn(self) -> None:
        self._is_after_turn = True
        self._turns.wait(self.begin_turn)

    def begin_turn(self) -> None:
        self._is_after_turn = False
        self._read_kept()

    def pause_reading(self) -> None:
        self._is_read_paused = True
        self._pause_or_resume()

    def resume_reading(self) -> None:
        self._is_read_paused = False
        if not self._is_decrypting:
            asyncio.get_running_loop().call_soon(self._read_kept)

    def _read_kept(self) -> None:
        if not self._is_read_paused and not self._is_closing and not self._is_after_turn:
            kept, self._kept = self._kept, b""
            self._decrypt(memoryview(kept))

    @property
    def _has_kept(self) -> bool:
        """Whether anything waits here to be decrypted: the socket says nothing more of it."""
        if self._kept or self._is_after_turn or self._is_decrypting:
            return True
        return self._ssl is not None and bool(self._incoming.pending or self._ssl.pending())

    def _pause_or_resume(self) -> None:
        """Pause or resume: nothing more is taken in while bytes that were taken in wait."""
        is_paused = self._is_read_paused or bool(self._kept)
        if is_paused != self._is_below_paused and not self._is_gone and not self._below.is_closing():
            self._is_below_paused = is_paused
            if is_paused:
                self._below.pause_reading()
            else:
                self._below.resume_reading()

    def is_reading(self) -> bool:
        return not self._is_read_paused and not self._is_closing

    # Sending

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_gone or self._has_said_goodbye:
            return
        if self._backlog or self._is_write_paused or len(data) > PIECE_BYTES or self._ssl is None:
            self.writelines((data,))
            return
        try:
            self._ssl.write(data)
        except ssl.SSLError as error:
            self._break(error)
            return
        self._below.write(self._outgoing.read())

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        if self._is_gone or self._has_said_goodbye:
            return
        for each in list_of_data:
            if each:
                self._backlog.append(memoryview(each))
                self._backlog_bytes += len(each)
        if not self._is_writing and not self._is_write_paused:
            self.encrypt_some()
        self._tell_paused()

    def _break(self, error: ssl.SSLError) -> None:
        self._refuse(why_failed(error))

    def _refuse(self, why: str) -> None:
        self._connections.log_refused(self.client_host, why)
        self.abort()

    def encrypt_some(self) -> None:
        """Encrypt as much of the backlog as the client takes, and not too much at once."""
        established, outgoing, backlog = self._ssl, self._outgoing, self._backlog
        assert established is not None
        left = MOST_AT_ONCE_BYTES
        self._is_writing = True
        try:
            while backlog and not self._is_write_paused and left > 0 and not self._is_gone:
                data = backlog[0]
                taken = established.write(data if len(data) <= PIECE_BYTES else data[:PIECE_BYTES])
                if taken == len(data):
                    backlog.popleft()
                else:
                    backlog[0] = data[taken:]
                self._backlog_bytes -= taken
                left -= taken
                self._below.write(outgoing.read())
        except ssl.SSLError as error:
            self._break(error)
        finally:
            self._is_writing = False
        if backlog and not self._is_write_paused and not self._is_gone:
            asyncio.get_running_loop().call_soon(self._go_on_writing)

    def _go_on_writing(self) -> None:
        if self._backlog and not self._is_gone:
            if self._is_write_paused:
                return
            self.encrypt_some()
        if self._backlog or self._is_write_paused or self._is_gone:
            return
        if self._is_closing:
            self._say_goodbye()
        elif self._is_inner_paused and self._inner is not None:
            self._is_inner_paused = False
            self._inner.resume_writing()

    def _tell_paused(self) -> None:
        is_paused = self._is_write_paused or bool(self._backlog)
        if is_paused and not self._is_inner_paused and self._inner is not None:
            self._is_inner_paused = True
            self._inner.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes + self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Below, a piece leaves at once: uvloop puts off what reaches no limit until all others had their turn."""
        self._below.set_write_buffer_limits(PIECE_BYTES if high is None else min(high, PIECE_BYTES), low)

    # The end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._backlog:
                self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Say goodbye, but not by TLS 1.2: OpenSSL would keep the session, with all certificates that the client has
        shown, for two hours, and twenty thousand of them. It forgets those of connections that just end."""
        self._has_said_goodbye = True
        if self._ssl is not None and self._ssl.version() != "TLSv1.2":
            try:
                self._ssl.unwrap()
            except ssl.SSLError:
                pass  # nobody waits for the client's own goodbye
            goodbye = self._outgoing.read()
            if goodbye:
                self._below.write(goodbye)
        self._below.close()

    def abort(self) -> None:
        self._is_closing = True
        self._below.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._tls.context
        if name == "ssl_object":
            return self._ssl
        if name == PRINCIPAL:
            return self._principal
        if name == HAS_KEPT:
            return self._has_kept
        if name == KEPT_BYTES:
            return len(self._kept) + self._incoming.pending
        return self._below.get_extra_info(name, default)


def why_failed(error: Exception) -> str:
    """A line for the server's log: what the client did, and what is to be done."""
    reason = (getattr(error, "reason", None) or str(error)).upper()
    words = reason.lower().replace("_", " ")
    if any(each in reason for each in _PLAIN):
        return f"it speaks without TLS to a listener that asks for it (is its security.protocol right?): {words}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return "it has shown no certificate, and ssl.client.auth=required"
    if "ALERT" in reason:
        return f"it gave up the TLS handshake: {words} (does it trust this server's certificate?)"
    return f"TLS failed: {words}"
