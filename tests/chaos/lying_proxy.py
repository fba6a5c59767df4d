"""A proxy that loses what it has acknowledged: some Produce requests never reach the server, and are answered as if
they had. The answer is the last true one under another correlation id, which any client believes."""

import socket
import struct
import threading
from types import TracebackType
from typing import Final, Self

PRODUCE: Final = 0
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")  # API key, version, correlation id


class LyingProxy:
    """Everything passes one by one, which keeps each connection's answers in order."""

    def __init__(self, lies_at: frozenset[int]) -> None:
        self._lies_at = lies_at  # which Produce requests, counted from 0 over all connections
        self._counting = threading.Lock()
        self._count = 0
        self.lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._upstream = 0

    @property
    def settings(self) -> dict[str, str]:
        """With which a server names the proxy as its address."""
        return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}

    def connect_to(self, port: int) -> None:
        self._upstream = port

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        last_answer = b""
        with client, socket.create_connection(("127.0.0.1", self._upstream)) as server:
            while (request := _frame(client)) is not None:
                api, _, correlation = _REQUEST.unpack_from(request)
                if api == PRODUCE and last_answer and self._is_lie():
                    answer = struct.pack(">i", correlation) + last_answer[4:]
                else:
                    server.sendall(_SIZE.pack(len(request)) + request)
                    found = _frame(server)
                    if found is None:
                        return
                    answer = found
                    last_answer = answer if api == PRODUCE else last_answer
                client.sendall(_SIZE.pack(len(answer)) + answer)

    def _is_lie(self) -> bool:
        with self._counting:
            self._count += 1
            is_lie = self._count - 1 in self._lies_at
            self.lost += is_lie
            return is_lie


def _frame(source: socket.socket) -> bytes | None:
    """Without its size; None at the end of the connection."""
    try:
        size = source.recv(4, socket.MSG_WAITALL)
        if len(size) < 4:
            return None
        (wanted,) = _SIZE.unpack(size)
        frame = source.recv(wanted, socket.MSG_WAITALL)
        return frame if len(frame) == wanted else None
    except OSError:
        return None
