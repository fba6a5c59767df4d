"""How a large frame is received: in pieces, into a buffer that grows by a little at a time."""

from types import SimpleNamespace
from typing import Any, cast

from oncelog.server.connections import Connections
from oncelog.server.memory import Memory
from oncelog.server.receiver import LARGE_FRAME_BYTES, Receiver
from oncelog.server.sleepers import Sleepers
from oncelog.wire.frames import SIZE


class Whole:
    """Takes the frames that are whole."""

    is_closing = is_serving = False
    active_ms = 0

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.receiver: Receiver | None = None

    def serve(self, buffer: bytearray, at: int, end: int) -> None:
        assert self.receiver is not None
        if end - at > LARGE_FRAME_BYTES:
            self.frames.append(bytes(buffer[at:end]))
        else:
            self.receiver.keep(buffer, at, end)

    def is_held(self) -> bool:
        return False

    def may_serve(self, key: int, size: int) -> bool:
        return True


def test_no_frame_is_received_or_moved_in_large_pieces() -> None:
    memory, serving = Memory(2**30), Whole()
    broker: Any = SimpleNamespace(
        memory=memory,
        metrics=SimpleNamespace(bytes_received=0),
        settings=SimpleNamespace(socket_request_max_bytes=2**27),
        clock=SimpleNamespace(now=lambda: SimpleNamespace(monotonic_ms=0)),
    )
    shared = SimpleNamespace(broker=broker, receive_buffer=bytearray(LARGE_FRAME_BYTES), sleepers=Sleepers())
    receiver = serving.receiver = Receiver(cast(Connections, shared), serving)
    body = bytes(range(256)) * (40 * 2**12)
    frame = SIZE.pack(len(body)) + body
    at, had, moved_bytes = 0, 0, 0
    buffer: object = None
    while at < len(frame):
        view = receiver.get_buffer()
        if at and view.obj is not buffer:
            moved_bytes += at
        assert len(view) <= 2**20
        assert not had or len(cast(bytearray, view.obj)) - had <= 2**22
        had, buffer = len(cast(bytearray, view.obj)) if at else 0, view.obj
        size = min(len(view), len(frame) - at)
        view[:size] = frame[at : at + size]
        at += size
        del view
        receiver.buffer_updated(size)
    assert serving.frames == [frame]
    assert moved_bytes < 2**20
    assert memory.unserved.held_bytes == 0
