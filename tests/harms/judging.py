"""Everything is read back from a server that was started on a harmed folder: what is missing, and who was told."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from oncelog.records.errors import InvalidRecord
from oncelog.records.header import body_crc, headers
from oncelog.records.read import records_of
from tests.harms.story import FIRST_MS, GROUP, KEYED, PARTITIONS, STEP_MS, Ledger, Place
from tests.raw import RawConnection

COMING_UP = (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available)
ASKED = 200


@dataclass
class Read:
    """Of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # what its reader got instead of records
    start: int = 0
    end: int = 0


def read(raw: RawConnection, place: Place) -> Read:
    """As a reader does that checks CRCs; it goes on behind whatever it is told of."""
    found = Read()
    for which in (-2, -1):
        answer = raw.offset_at(*place, which)
        if answer.error_code is not ErrorCode.none:
            found.told.append(f"its offsets: {answer.error_code.name}")
            return found
        found.start, found.end = (answer.offset, answer.offset) if which == -2 else (found.start, answer.offset)
    offset = found.start
    while offset < found.end:
        answer = raw.fetch(*place, offset)
        if answer.error_code is not ErrorCode.none:
            found.told.append(f"offset {offset}: {answer.error_code.name}")
            if answer.error_code is not ErrorCode.corrupt_message:
                return found
            offset += 1
            continue
        offset = max(offset + 1, take(found, bytes(answer.records or b""), offset))
    return found


def take(found: Read, data: bytes, offset: int) -> int:
    """The offset behind the last record."""
    behind, expected = offset, offset
    for at, header in headers(data):
        if body_crc(data, at, header.size_bytes) != header.crc:
            found.told.append(f"offset {expected}: a wrong CRC")
            last = header.last_offset if expected <= header.last_offset < found.end else expected
            behind = expected = last + 1
            continue
        if header.base_offset > expected or header.last_offset < expected:
            found.told.append(f"offset {expected}: {header.base_offset} comes")  # is for topics without gaps alone
        try:
            records = [] if header.is_control else records_of(data, at)
        except InvalidRecord as error:
            found.told.append(f"offset {expected}: {error}")
            records = []
        for each in records:
            if each.offset >= offset:
                found.values[each.offset] = each.value or b""
                found.order.append(each.offset)
        behind = expected = header.last_offset + 1
    if behind == offset:
        found.told.append(f"offset {offset}: nothing comes")
    return behind


def wrong_with(found: Read, ledger: Ledger, place: Place) -> Iterator[str]:
    """What a reader got that is not what was acknowledged. Whether it was told is another question."""
    acknowledged, sent = ledger.records.get(place, {}), ledger.sent.get(place, set())
    if place[0] == KEYED:
        yield from wrong_with_keys(found, ledger, place)
    else:
        missing = [offset for offset in acknowledged if offset not in found.values]
        if missing:
            yield f"{len(missing)} of {len(acknowledged)} are missing, such as {sorted(missing)[:3]}"
    others = [offset for offset, value in found.values.items() if acknowledged.get(offset, value) != value]
    if others:
        yield f"{len(others)} are others, such as {sorted(others)[:3]}"
    if found.order != sorted(set(found.order)):
        yield "offsets come again"
    unknown = [offset for offset, value in found.values.items() if value not in sent]
    if unknown:
        yield f"{len(unknown)} were never sent, such as {sorted(unknown)[:3]}"
    if len(set(found.values.values())) < len(found.values):
        yield "values stand twice"


def wrong_with_keys(found: Read, ledger: Ledger, place: Place) -> Iterator[str]:
    newest: dict[bytes, int] = {}
    for offset in sorted(ledger.records.get(place, {})):
        newest[ledger.keys[offset]] = offset
    gone = [offset for offset in newest.values() if offset not in found.values]
    if gone:
        yield f"the newest of {len(gone)} keys are missing, such as {sorted(gone)[:3]}"


def wrong_times(raw: RawConnection, place: Place, ledger: Ledger) -> Iterator[str]:
    """The first record at or after a time."""
    acknowledged = sorted(ledger.records.get(place, {}))
    for offset in acknowledged[:: max(len(acknowledged) // 3, 1)]:
        answer = raw.offset_at(*place, FIRST_MS + offset * STEP_MS)
        is_first = offset == 0 or (offset - 1) in ledger.records[place]
        if answer.error_code is ErrorCode.none and is_first and not answer.offset <= offset:
            yield f"at the time of offset {offset} stands {answer.offset}"


def committed(raw: RawConnection) -> dict[Place, int] | str:
    wanted = [{"name": name, "partition_indexes": list(range(count))} for name, count in PARTITIONS.items()]
    for _ in range(ASKED):
        answer = raw.call("offset_fetch", 7, group_id=GROUP, topics=wanted)
        if answer.error_code is ErrorCode.none:
            return {
                (topic.name, part.partition_index): part.committed_offset
                for topic in answer.topics
                for part in topic.partitions
            }
        if answer.error_code not in COMING_UP:
            break
        with contextlib.suppress(TimeoutError):
            raw.fetch("plain", 0, 10**9, max_wait_ms=20)
    name: str = answer.error_code.name
    return name


def wrong_commits(found: dict[Place, int], ledger: Ledger) -> list[str]:
    return [
        f"{place[0]}-{place[1]}: committed was {offset}, now it is {found.get(place)}"
        for place, offset in ledger.committed.items()
        if not offset <= found.get(place, -1) <= ledger.tried[place]
    ]
