"""The output of a connection: answers in their order, by one write for all that are there, and what the client has
left.

While the client does not take its answers, what the transport holds for it counts against the memory of all.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

from oncelog.log.slices import Slice
from oncelog.server.broker import Broker
from oncelog.server.call import Encoded
from oncelog.server.straight import Answer, Straight, read_all

WRITE_HIGH_BYTES = 256 * 1024
JOIN_BELOW_BYTES = 64 * 1024  # answers up to this size are copied together for one write


class Outgoing:
    def __init__(self, broker: Broker) -> None:
        self._clock = broker.clock
        self._metrics = broker.metrics
        self._unsent = broker.memory.unsent
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._straight: Straight | None = None
        self._out: list[Answer] = []
        self._out_bytes = 0
        self._unsent_bytes = 0
        self.unread_since_ms: int | None = None  # where the client does not take its answers

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether it is time to send: only then it is known whether the client takes it."""
        return self._out_bytes > WRITE_HIGH_BYTES

    def put(self, answer: Answer) -> None:
        if answer:
            self._out.append(answer)
            self._out_bytes += len(answer)

    def put_all(self, answer: Encoded) -> None:
        """Raises LogStorageError where a part of it cannot be read, when its length is promised already."""
        buffers = cast("Sequence[Answer]", answer.buffers)
        if answer.has_slices:
            buffers = self._send_slices(answer.buffers)
        for each in buffers:
            self.put(each)

    def _send_slices(self, buffers: Sequence[Answer | Slice]) -> list[Answer]:
        """Send at once as much as the socket takes; the rest of the answer, which is all of it where the socket is not
        free."""
        self.send()
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

    def send(self) -> None:
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

    def pause(self) -> None:
        self.unread_since_ms = self._clock.now().monotonic_ms
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._unsent.hold(self._unsent_bytes)

    def resume(self) -> None:
        self._forget_unsent()
        self.unread_since_ms = None

    def drop(self) -> None:
        """The connection is gone."""
        self._forget_unsent()
        self._out = []
        if self._straight is not None:
            self._straight.let_go()
            self._straight = None

    def _forget_unsent(self) -> None:
        self._unsent.give_back(self._unsent_bytes)
        self._unsent_bytes = 0
