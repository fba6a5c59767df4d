"""The records of a journal: one structure for each kind of record, with its version and its bounds.

A record's key says its kind by its first byte, and its value is JSON, so that any Kafka tool can show a journal. Only
what has one value at a time has one key, since compaction keeps the last record of a key: a claim has a key of its own,
a take-over carries the whole chain of journal pids, a state entry has the key of what it is about.
"""

from collections.abc import Mapping
from typing import Annotated, Final

try:
    import msgspec
except ImportError as missing:
    raise ImportError("oncelog.flow needs msgspec, which is not installed: pip install 'oncelog[flow]'") from missing

VERSION: Final = 1
CLAIM, TAKE_OVER, COMMIT, HELD, ROWS, GOODBYE, STATE = b"c", b"t", b"k", b"o", b"r", b"g", b"s"

TIME: Final = b"oncelog.time"  # header of an output: its event time, in milliseconds
SOURCE: Final = b"oncelog.source"  # and the record that caused it: topic, partition, offset
STAGE: Final = b"oncelog.stage"  # of a dead letter: which flow and stage could not work on it
ERROR: Final = b"oncelog.error"  # and why

MOST_CHAINED: Final = 1_000  # journal pids, each good for 32,767 take-overs
MOST_PLACES: Final = 20_000  # inputs, or outputs, of one cell
MOST_RANGES: Final = 10_000  # of one plan
MOST_METRICS: Final = 64
MOST_SHOWN: Final = 60  # bytes of a key, in a message
MOST_WHY: Final = 1_000
MOST_HELD: Final = 1_000_000  # outputs in one record, or rows

Name = Annotated[str, msgspec.Meta(max_length=249)]
Nonce = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


def shown(key: bytes | None) -> str:
    """A key, in words."""
    return "null" if key is None else f"{key[:MOST_SHOWN]!r}{'...' if len(key) > MOST_SHOWN else ''}"


class Unreadable(Exception):
    """A record of a journal that this version cannot read, or that is no journal's."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that all kinds have in common."""

    v: int = VERSION


class Claim(Entry, frozen=True, kw_only=True):
    """The producer ids that the cell writes under. Of several the first counts."""

    flow: Name
    stage: Name
    cell: Count
    journal_pid: Count
    output_pid: Count


class Tenancy(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The time at which the driver started, and which of its attempts it is. The newer one wins."""

    started_ms: Count
    attempt: Count


class TakeOver(Entry, frozen=True, kw_only=True):
    """The first batch of a holder."""

    nonce: Nonce
    tenancy: Tenancy
    code: Name  # the flow's version and the fingerprint of its codecs
    until_ms: Count  # wall clock: this holder sends nothing after it
    others_until_ms: Count = 0  # and so long may holders with other code send that were there before it
    chain: Annotated[list[Count], msgspec.Meta(min_length=1, max_length=MOST_CHAINED)]
    successor: Count | None = None  # the journal pid after this one; then nothing else is ever written under this epoch


class InputPosition(msgspec.Struct, frozen=True, array_like=True):
    topic_id: Name
    next_offset: Count
    leader_epoch: int = -1
    mark_ms: int = -1  # no older record is waited for, by what was read up to here


class OutputPosition(msgspec.Struct, frozen=True, array_like=True):
    topic: Name
    partition: Count
    topic_id: Name
    filled: Count  # slots, since the flow began
    next_offset: int  # nothing of a later slot lies below it; -1 where nothing is known


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Records of one input, from the first offset to before the second. Then, where there is a mark, no record of this
    input is waited for that is older."""

    input: Count
    first: Count
    end: Count
    mark_ms: int = -1


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """The records that the next step takes, in this order."""

    ranges: Annotated[list[Range], msgspec.Meta(max_length=MOST_RANGES)]
    ended: Annotated[list[Count], msgspec.Meta(max_length=MOST_PLACES)]  # inputs that were read to their end
    time_ms: Count  # what time it is then


class Commit(Entry, frozen=True, kw_only=True):
    """Everything up to here stands in the log, and the state entries of the same batch belong to it."""

    number: Count
    nonce: Nonce
    code: Name
    inputs: Annotated[list[InputPosition], msgspec.Meta(max_length=MOST_PLACES)]
    outputs: Annotated[list[OutputPosition], msgspec.Meta(max_length=MOST_PLACES)]
    watermark_ms: int = -1
    metrics: Annotated[dict[Name, float], msgspec.Meta(max_length=MOST_METRICS)] = {}
    plan: Plan | None = None


Cells = Annotated[list[bytes | None], msgspec.Meta(max_length=MOST_HELD)]
Column = Annotated[list[bytes], msgspec.Meta(max_length=MOST_HELD)]


class Held(Entry, frozen=True, kw_only=True):
    """Outputs that do not repeat. They are sent when the commit in whose batch they stand is acknowledged; others of
    the same key are those of older commits, and were sent."""

    number: Count  # of that commit
    index: Count  # among those of one commit
    topic: Name
    partition: Count
    keys: Cells
    values: Cells
    headers: Annotated[dict[Name, Column], msgspec.Meta(max_length=MOST_METRICS)] = {}


class PlannedRows(Entry, frozen=True, kw_only=True):
    """The rows of one table that a plan takes. Compaction may remove them from the table's topic before a replay.
    Others of the same key are those of older commits."""

    number: Count  # of the commit with the plan
    input: Count
    offsets: Annotated[list[Count], msgspec.Meta(max_length=MOST_HELD)]
    keys: Cells
    values: Cells
    times: Annotated[list[int], msgspec.Meta(max_length=MOST_HELD)]


class Goodbye(Entry, frozen=True, kw_only=True):
    """This holder sends nothing any more."""

    nonce: Nonce
    ended: Name | None = None  # the run to whose end all is done, and sent
    cut: Name | None = None  # the run of which all is done that there will be, since a cell before it has stopped
    why: Annotated[str, msgspec.Meta(max_length=MOST_WHY)] = ""  # it cannot go on, and a person has to look at it


class Kinds:
    """The kinds of records of one sort of topic, by the first byte of their keys."""

    def __init__(self, topic: str, remedy: str, kinds: Mapping[bytes, type[Entry]]) -> None:
        self._topic = topic
        self._remedy = remedy  # where a record cannot be read
        self._prefixes = {kind: prefix for prefix, kind in kinds.items()}
        self._decoders = {prefix: msgspec.json.Decoder(kind) for prefix, kind in kinds.items()}

    def encoded(self, entry: Entry, own: bytes = b"") -> tuple[bytes, bytes]:
        """Key and value; `own` is what of the key is this record's alone."""
        return self._prefixes[type(entry)] + own, _encode(entry)

    def knows(self, key: bytes) -> bool:
        return key[:1] in self._decoders

    def decoded(self, key: bytes, value: bytes, where: str = "") -> Entry:
        """Raises Unreadable, with `where` it stands."""
        try:
            version = _version.decode(value).v
            if version > VERSION:
                raise Unreadable(
                    f"a record of version {version} stands in the {self._topic}{where}, and this program reads up to "
                    f"{VERSION}: a newer oncelog wrote it. Run that one"
                )
            entry: Entry = self._decoders[key[:1]].decode(value)
        except (KeyError, RecursionError, msgspec.MsgspecError) as error:
            raise Unreadable(
                f"the record with the key {shown(key)}{where} is no record of a {self._topic} ({error}): something "
                f"else writes to this topic, or it is damaged. Find out who writes to it, and {self._remedy}"
            ) from error
        return entry


_encode: Final = msgspec.json.Encoder().encode
_version: Final = msgspec.json.Decoder(Entry)
RESET_DAMAGED: Final = "begin the flow anew without it (`oncelog flow reset --damaged`)"
_JOURNAL: Final = Kinds(
    "journal",
    RESET_DAMAGED,
    {CLAIM: Claim, TAKE_OVER: TakeOver, COMMIT: Commit, HELD: Held, ROWS: PlannedRows, GOODBYE: Goodbye},
)

decoded: Final = _JOURNAL.decoded  # any of them but a state entry


def encoded(entry: Entry) -> tuple[bytes, bytes]:
    """A claim has a key of its own, what is held is numbered, and each table has its rows; of each other kind there is
    one at a time."""
    return _JOURNAL.encoded(entry, own_key_of(entry))


def own_key_of(entry: Entry) -> bytes:
    if isinstance(entry, Held):
        return b"%d" % entry.index
    if isinstance(entry, PlannedRows):
        return b"%d" % entry.input
    return b"%d" % entry.journal_pid if isinstance(entry, Claim) else b""
