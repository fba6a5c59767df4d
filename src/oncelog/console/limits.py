"""The cost that one request of the page may have, and the turns of the server's event loop that it leaves to others."""

from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

from oncelog.server.turns import Turns

T = TypeVar("T")

MOST_ROWS: Final = 100  # of a table; the rest is on its next pages
MOST_SEARCHED: Final = 20_000  # of topics or groups that a search looks at
MOST_SUMMED: Final = 5_000  # partitions, or committed offsets, that a request adds up
MOST_PRODUCERS: Final = 200
MOST_RING_PLACES: Final = 180  # of the picture
MOST_MEMBERS: Final = 100
MOST_FAULTS: Final = 200
MOST_OFFLINE: Final = 20
MOST_SINKS: Final = 20  # of a table: each is a topic that is read
MOST_FLOWS: Final = 20  # of a table: the register of each is read
MOST_FLOW_CELLS: Final = 20  # of a table: the end of the journal of each is read
MOST_REGISTER_BATCHES: Final = 2_000
MOST_STATES_AND_MARKS: Final = 2_000  # records of a sink's topic that are looked back over
MOST_STATE_BYTES: Final = 1 << 20  # of one of them: a thread that parses it lets nobody else work

MOST_MESSAGES: Final = 50
PREVIEW_BYTES: Final = 512  # of a key or a value in a list
WHOLE_BYTES: Final = 64 << 10  # of a message that is looked at alone
MOST_HEADERS: Final = 50
NAME_BYTES: Final = 256

READ_BYTES: Final = 2 << 20  # of the log for one request, or one batch of at most
LARGEST_BATCH_BYTES: Final = 4 << 20
UNFOLDED_BYTES: Final = 16 << 20  # of one batch
MOST_WALKED: Final = 50_000  # records of one batch
MOST_BATCHES: Final = 100
MOST_TAILED: Final = 8  # partitions whose ends are read for one list

MOST_EXACT: Final = (1 << 53) - 1  # of a browser's numbers


async def in_turns(turns: Turns, items: Iterable[T]) -> AsyncIterator[T]:
    """Other connections are served in between, so `items` must not be what they change."""
    for item in items:
        if turns.is_over():
            await turns.next()
        yield item


def exact(number: int) -> int | str:
    """A browser keeps 53 bits of a number; what has more is told as text."""
    return number if -MOST_EXACT <= number <= MOST_EXACT else str(number)
