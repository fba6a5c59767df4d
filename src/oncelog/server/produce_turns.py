"""Produce requests for very many partitions, which are staged and committed in turns."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from oncelog.server.bodies import Verdicts
from oncelog.server.broker import Broker
from oncelog.server.produced import Outcome
from oncelog.server.turns import called
from oncelog.wire.hot import ProducePartition, ProduceRequest, ProduceTopic

AT_ONCE, AT_ONCE_BYTES = 200, 8 * 2**20  # partitions of a request; one for more is staged and committed in turns
PARTITIONS_IN_A_STEP, BYTES_IN_A_STEP = 50, 2**20  # half a millisecond, most of it the system's copy


class Producing(Protocol):
    """The part of a request that is staged and committed at once, for the connection that has sent it."""

    def commit_part(
        self, part: ProduceTopic, buffer: bytearray, request: ProduceRequest, version: int, verdicts: Verdicts
    ) -> list[Outcome]: ...


class InTurns:
    """A request for very many partitions, or of very many bytes for several. They are staged and committed some at a
    time, and when all of them are, it is served as if it had been at once. Where its client hangs up, the rest of it
    never came."""

    def __init__(
        self,
        broker: Broker,
        producing: Producing,
        buffer: bytearray,
        request: ProduceRequest,
        version: int,
        verdicts: Verdicts,
    ) -> None:
        self._broker = broker
        self._producing = producing
        self._buffer = buffer
        self.request = request
        self._version = version
        self._verdicts = verdicts
        self.topics: list[tuple[bytes, list[Outcome]]] = []

    def keep(self) -> None:
        """The buffer will be used for something else meanwhile."""
        self._buffer = bytearray(self._buffer)

    async def run(self) -> None:
        turns, housekeeping, producing = self._broker.turns, self._broker.housekeeping, self._producing
        for name, partitions in self.request.topics:
            outcomes: list[Outcome] = []
            self.topics.append((name, outcomes))
            for size_bytes, part in _parts(partitions):
                while not housekeeping.has_room(size_bytes):
                    await called(housekeeping.wait_for_room)
                if turns.is_over():
                    await turns.next()
                committed = producing.commit_part(
                    (name, part), self._buffer, self.request, self._version, self._verdicts
                )
                for outcome in committed:
                    outcome.make()
                outcomes += committed


def is_much(topics: Sequence[ProduceTopic], size_bytes: int) -> bool:
    count = sum(len(partitions) for _, partitions in topics)
    return count > AT_ONCE or (count > 1 and size_bytes > AT_ONCE_BYTES)


def _parts(partitions: Sequence[ProducePartition]) -> Iterator[tuple[int, list[ProducePartition]]]:
    part: list[ProducePartition] = []
    size_bytes = 0
    for each in partitions:
        part.append(each)
        size_bytes += max(each[2] - each[1], 0)  # there may be NO_RECORDS
        if len(part) == PARTITIONS_IN_A_STEP or size_bytes >= BYTES_IN_A_STEP:
            yield size_bytes, part
            part, size_bytes = [], 0
    if part:
        yield size_bytes, part


class TurnsFirst(Exception):
    """Nothing of the request was staged: this is to be done before."""

    def __init__(self, look: InTurns) -> None:
        super().__init__("a request has to be staged in turns")
        self.look = look
