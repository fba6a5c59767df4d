"""The saved producer in and out of committed offsets.

One OffsetCommit in a group of its own holds the input positions and, in their `metadata`, the producer. Kafka bounds
the metadata of an entry (`offset.metadata.max.bytes`, 4,096 by default), and refuses an oversized entry alone while it
stores its neighbours. So the value is squeezed and cut into chunks that fit beside the user's own metadata. Where the
inputs' entries do not suffice, entries of the output partitions are added; they hold the producer's next offset there.

    user's own metadata |oncelog1|save|chunk|chunks|kind|checksum|data

- `save` counts the saves of the group, so that a mix of two saves is found: the newest must be there in whole.
- `kind` tells the entry of an input position (i) from an added one (x).
- `checksum` covers the whole save and stands in each of its chunks.

A marker is looked for from the end, and base64 has no bar, so whatever the user wrote before it comes back unchanged.
"""

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from oncelog.client.register.entry import Entry
from oncelog.client.saving.errors import BadSavedProducer
from oncelog.client.saving.saved_topics import SavedTopic

DEFAULT_LIMIT_BYTES: Final = 4_096
LIMIT_SETTING: Final = "offset.metadata.max.bytes"
MOST_UNFOLDED_BYTES: Final = 64 << 20
INPUT: Final = "i"
ADDED: Final = "x"

_MARKER = "|oncelog1|"
_CHECKSUM_LETTERS = 8
_NUMBER_LETTERS = 18


class Chunk(NamedTuple):
    save: int
    at: int
    chunks: int
    kind: str
    checksum: str
    data: str


class Savable(Protocol):
    """A saved producer."""

    @property
    def topics(self) -> Mapping[str, SavedTopic]: ...

    def to_json(self) -> str: ...


S = TypeVar("S", bound=Savable)


class Committed(NamedTuple, Generic[S]):
    positions: tuple[Entry, ...]  # without what oncelog added to their metadata
    saved: S | None
    save: int  # 0: the group holds no producer


def put_in(
    positions: Sequence[Entry],
    saved: Savable,
    save: int,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    may_add: bool = True,
) -> list[Entry]:
    """The entries of one OffsetCommit; BadSavedProducer, naming the limit, where they cannot hold the producer.

    `may_add`: the group's cluster has the output topics too, so entries of theirs may be added.
    """
    data = base64.urlsafe_b64encode(zlib.compress(saved.to_json().encode(), 9)).decode().rstrip("=")
    checksum = hashlib.sha256(f"{save}|{data}".encode()).hexdigest()[:_CHECKSUM_LETTERS]
    additions = _additions(positions, saved) if may_add else []
    places = [*((each, INPUT) for each in positions), *((each, ADDED) for each in additions)]
    # Every input entry gets a chunk, an empty one at the end, so that a position of another save is always found.
    cuts: list[tuple[Entry, str, str]] = []
    for number, (entry, kind) in enumerate(places):
        if number >= len(positions) and not data:
            break
        room = limit_bytes - _units(entry.metadata) - _head_letters(save, len(places), checksum)
        if room < 0:
            if kind == INPUT:
                raise _too_small(entry, limit_bytes)
            continue
        cuts.append((entry, kind, data[:room]))
        data = data[room:]
    if data or not cuts:
        raise BadSavedProducer(
            f"the saved producer does not fit into {len(places)} entries of at most {limit_bytes} bytes of metadata "
            f"({len(data)} bytes are left over): raise {LIMIT_SETTING} on the brokers, save with fewer output "
            "partitions to a producer, or keep producer.saved() in a store of your own"
        )
    return [
        entry._replace(metadata=entry.metadata + _head(save, at, len(cuts), kind, checksum) + piece)
        for at, (entry, kind, piece) in enumerate(cuts)
    ]


def _too_small(entry: Entry, limit_bytes: int) -> BadSavedProducer:
    return BadSavedProducer(
        f"the metadata of {entry.topic}-{entry.partition} leaves no room for the producer: an entry holds at most "
        f"{limit_bytes} bytes ({LIMIT_SETTING}); shorten it, or raise the limit on the brokers"
    )


def _additions(positions: Iterable[Entry], saved: Savable) -> list[Entry]:
    taken = {(each.topic, each.partition) for each in positions}
    return [
        Entry(name, at, partition.next_offset)
        for name, topic in sorted(saved.topics.items())
        for at, partition in sorted(topic.partitions.items())
        if (name, at) not in taken
    ]


def _head(save: int, at: int, count: int, kind: str, checksum: str) -> str:
    return f"{_MARKER}{save}|{at}|{count}|{kind}|{checksum}|"


def _head_letters(save: int, count: int, checksum: str) -> int:
    return len(_head(save, count, count, INPUT, checksum))


def _units(text: str) -> int:
    """Kafka compares the length of a Java string; a broker that counted bytes would count at least as many."""
    return max(len(text.encode("utf-8", "surrogatepass")), len(text.encode("utf-16-le", "surrogatepass")) // 2)


def take_out(entries: Iterable[Entry], decode: Callable[[bytes], S]) -> Committed[S]:
    """Everything that a group holds, told apart; BadSavedProducer where the newest save is not there in whole. `decode`
    makes a saved producer of its JSON."""
    positions: list[Entry] = []
    chunks: list[tuple[Entry, Chunk]] = []
    for entry in entries:
        own, chunk = _split(entry)
        if chunk is not None:
            chunks.append((entry, chunk))
        if chunk is None or chunk.kind == INPUT:
            positions.append(entry._replace(metadata=own))
    if not chunks:
        return Committed(tuple(positions), None, 0)
    newest = max(chunk.save for _, chunk in chunks)
    pieces: dict[int, Chunk] = {chunk.at: chunk for _, chunk in chunks if chunk.save == newest}
    return Committed(tuple(positions), decode(_join(newest, pieces)), newest)


def _join(save: int, pieces: Mapping[int, Chunk]) -> bytes:
    any_piece = next(iter(pieces.values()))
    # Counted rather than listed: somebody else's text may claim any number of chunks.
    missing = any_piece.chunks - sum(at < any_piece.chunks for at in pieces)
    if missing or any(
        each.checksum != any_piece.checksum or each.chunks != any_piece.chunks for each in pieces.values()
    ):
        raise BadSavedProducer(
            f"save {save} is not whole in the committed offsets: "
            + (f"{missing} of {any_piece.chunks} chunks are missing" if missing else "two saves are mixed")
            + "; somebody committed or deleted offsets of this group without its producer. The positions and the "
            "producer no longer belong together: restore both from your own copy, or start anew from a known position"
        )
    data = "".join(pieces[at].data for at in range(any_piece.chunks))
    if (
        not data.isascii()
        or hashlib.sha256(f"{save}|{data}".encode()).hexdigest()[:_CHECKSUM_LETTERS] != any_piece.checksum
    ):
        raise BadSavedProducer(f"save {save} was changed since it was committed: its checksum does not fit")
    return _unfold(data)


def _unfold(data: str) -> bytes:
    unfolding = zlib.decompressobj()
    try:
        text = unfolding.decompress(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)), MOST_UNFOLDED_BYTES)
    except (ValueError, zlib.error) as error:
        raise BadSavedProducer(f"the saved producer in the committed offsets cannot be read: {error}") from None
    if not unfolding.eof:
        raise BadSavedProducer("the saved producer in the committed offsets is cut short, or larger than any can be")
    return text


def _split(entry: Entry) -> tuple[str, Chunk | None]:
    own, marker, rest = entry.metadata.rpartition(_MARKER)
    fields = rest.split("|")
    if not marker:
        return entry.metadata, None
    if len(fields) != 6 or fields[3] not in (INPUT, ADDED) or not all(map(_is_number, fields[:3])):
        # To take it for a group that never had a producer would be to write everything once more.
        raise BadSavedProducer(
            f"what stands beside the position of {entry.topic}-{entry.partition} was a saved producer's, "
            f"and was changed or cut short since it was committed: {entry.metadata[:200]!r}"
        )
    save, at, count, kind, checksum, data = fields
    return own, Chunk(int(save), int(at), int(count), kind, checksum, data)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _NUMBER_LETTERS
