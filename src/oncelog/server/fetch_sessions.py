"""Fetch sessions (KIP-227): partitions that a reader named once and fetches again and again, and what it was told of
them, so that both say only what has changed. Pure.

    session id, epoch     the fetch
    any, -1               ends the session that it names, and has none
    any, 0                ends the session that it names, and opens one with the partitions that it names
    the id, 1, 2, 3 ...   goes on with it: what it names is added or changed, what it forgets is taken away

A session belongs to a principal: to others it is not there. It outlives its connection, as in Kafka. There are as many
as `max.incremental.fetch.session.cache.slots`, of `MOST_PARTITIONS` in all; who finds no room is answered in full, each
time. Room is made as Kafka makes it: of a session that nobody has used for `min.incremental.fetch.session.eviction.ms`,
or of the smallest one that is as old as that and not larger than the new one.

What has changed is whatever a full answer would show: records, an error, the high watermark, the stable offset, the
beginning of the log. (Kafka passes over the stable offset.)
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from oncelog.log.work_steps import Steps
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.wire.fetch_request import FetchPartition, FetchRequest
from oncelog.wire.hot import NO_TAGS, Fetched

MOST_PARTITIONS: Final = 100_000  # of all sessions: some 400 bytes each
AT_A_TIME: Final = 100  # of what is done in turns
LOOK_AGAIN_MS: Final = 1_000  # for room, after there was none
NO_SESSION: Final = 0
OPENS, ENDS = 0, -1  # what epochs say
LAST_EPOCH: Final = 2**31 - 1

Found = list[tuple[bytes, list[Fetched[Any]]]]
Told = tuple[int, int, int]


class Kept:
    """One partition of a session."""

    __slots__ = ("told", "wanted")

    def __init__(self, wanted: FetchPartition, told: Told | None = None) -> None:
        self.wanted = wanted
        self.told = told


NOTHING: Final[Mapping[int, Kept]] = {}


class Session:
    __slots__ = ("begun_ms", "count", "epoch", "has_ids", "id", "names", "principal", "topics", "used_ms")

    def __init__(self, number: int, principal: str, has_ids: bool, now_ms: int) -> None:
        self.id = number
        self.principal = principal
        self.has_ids = has_ids
        self.begun_ms = self.used_ms = now_ms
        self.epoch = 1  # of the next fetch
        self.topics: dict[bytes, dict[int, Kept]] = {}  # those that gave records last stand last
        self.names: dict[bytes, str] = {}  # by the ids of topics that were there once
        self.count = 0  # of partitions


def next_epoch(epoch: int) -> int:
    return 1 if epoch == LAST_EPOCH else epoch + 1


class Opening:
    """A fetch that opens a session, if there is room when it is answered."""

    def __init__(self, sessions: "FetchSessions", request: FetchRequest, session: Session) -> None:
        self._sessions = sessions
        self._request = request
        self._session = session
        self.error_code = 0
        self.session_id = NO_SESSION
        self.names = session.names
        self.count = sum(len(wanted) for _, wanted in request.topics)

    def updating(self) -> Steps[None]:
        yield from ()

    def asked(self) -> Iterator[tuple[bytes, Sequence[FetchPartition]]]:
        yield from self._request.topics

    def kept(self, name: bytes) -> Mapping[int, Kept]:
        return NOTHING

    def answering(self, found: Found) -> Steps[Found]:
        """The whole answer: the session begins with it."""
        session = self._session
        if self._sessions.has_room(session, self.count):
            topics: dict[bytes, dict[int, Kept]] = {}
            for (name, wanted), at in _some_at_a_time(self._request.topics):
                if wanted:
                    kept = topics.setdefault(name, {})
                    kept.update((each.partition, Kept(each)) for each in wanted[at : at + AT_A_TIME])
                yield None
            for (name, fetched), at in _some_at_a_time(found):
                for each in fetched[at : at + AT_A_TIME]:
                    topics[name][each.partition_index].told = _told(each)
                yield None
            session.topics = topics
            session.names = {name: self.names[name] for name in topics if name in self.names}
            session.count = sum(map(len, topics.values()))
            self.session_id = self._sessions.open(session)
        return found


class Following:
    """A fetch that goes on with a session, of the epoch that this had then."""

    def __init__(self, sessions: "FetchSessions", request: FetchRequest, session: Session) -> None:
        self._sessions = sessions
        self._request = request
        self._session = session
        self._epoch = session.epoch
        self.error_code = 0
        self.session_id = session.id
        self.names = session.names

    @property
    def count(self) -> int:
        return self._session.count

    def updating(self) -> Steps[None]:
        """Update the session, before all else. Raises KafkaError where there is no room for more."""
        sessions, session, topics = self._sessions, self._session, self._session.topics
        for (name, wanted), at in _some_at_a_time(self._request.topics):
            for partition in wanted[at : at + AT_A_TIME]:
                sessions.keep(session, partition, topics.setdefault(name, {}))
            yield None
        for (name, indexes), at in _some_at_a_time(self._request.forgotten):
            kept = topics.get(name, {})
            for index in indexes[at : at + AT_A_TIME]:
                sessions.lose(session, index, kept)
            if not kept:
                topics.pop(name, None)
                session.names.pop(name, None)
            yield None
        if not session.count:  # over, and this is a fetch like any other
            self.session_id = NO_SESSION

    def asked(self) -> Iterator[tuple[bytes, Sequence[FetchPartition]]]:
        """A copy, some at a time: meanwhile another fetch may change the session."""
        if not self.session_id:
            yield from self._request.topics
        for name, kept in list(self._session.topics.items()):
            every = list(kept.values())
            for start in range(0, len(every), AT_A_TIME):
                yield name, [each.wanted for each in every[start : start + AT_A_TIME]]

    def kept(self, name: bytes) -> Mapping[int, Kept]:
        """The last answers about the topic's partitions, by their indexes: the partitions need not be found again."""
        return self._session.topics.get(name, NOTHING) if self.session_id else NOTHING

    def answering(self, found: Found) -> Steps[Found]:
        """The part of it that the reader does not know."""
        session = self._session
        if not self.session_id:
            return found
        said: Found = []
        if self._is_overtaken():
            return said
        for name, fetched in found:
            kept = session.topics.get(name, {})
            news: list[Fetched[Any]] = []
            for start in range(0, len(fetched), AT_A_TIME):
                if start:
                    yield None
                    if self._is_overtaken():
                        return []
                for each in fetched[start : start + AT_A_TIME] if len(fetched) > AT_A_TIME else fetched:
                    index, error_code, watermark, beginning, records, tags, stable_offset, _ = each
                    one, told = kept.get(index), (watermark, stable_offset, beginning)
                    if one is None or (told == one.told and not records and not error_code and tags is NO_TAGS):
                        continue
                    one.told = told  # an error tells no offsets: once it is over, that is news
                    news.append(each)
            if news:
                said.append((name, news))
        if said:
            self._rotate(said)
        return said

    def _is_overtaken(self) -> bool:
        """Whether somebody went on with the session before this one was answered."""
        if self._session.epoch == self._epoch:
            return False
        self.error_code = ErrorCode.invalid_fetch_session_epoch
        return True

    def _rotate(self, said: Found) -> None:
        """Partitions that gave records come last the next time, so that limits do not keep the others out for ever."""
        topics = self._session.topics
        for name, news in said:
            given = [each.partition_index for each in news if len(each.records)]
            if given:
                kept = topics[name] = topics.pop(name)
                for index in given:
                    kept[index] = kept.pop(index)


def _told(fetched: Fetched[Any]) -> Told:
    return fetched.high_watermark, fetched.stable_offset, fetched.log_start_offset


def _some_at_a_time(topics: Sequence[tuple[bytes, Sequence[Any]]]) -> Iterator[tuple[tuple[bytes, Sequence[Any]], int]]:
    for topic in topics:
        for start in range(0, max(len(topic[1]), 1), AT_A_TIME):
            yield topic, start


class FetchSessions:
    def __init__(
        self, most: int, eviction_ms: int, draw: Callable[[], int], most_partitions: int = MOST_PARTITIONS
    ) -> None:
        """`draw` gives ids that nobody can guess, from 1 to 2^31 - 1."""
        self._most = most
        self._eviction_ms = eviction_ms
        self._draw = draw
        self._most_partitions = most_partitions
        self._by_id: OrderedDict[int, Session] = OrderedDict()  # the least recently used first
        self._full = (0, -1)  # until when, and for what size, it was found that no room can be made
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, request: FetchRequest, principal: str, now_ms: int, *, has_ids: bool) -> Opening | Following | None:
        """None for a fetch that has no session. Raises KafkaError for one that cannot have the one that it names."""
        session = self._by_id.get(request.session_id)
        if session is not None and session.principal != principal:
            session = None
        if request.session_epoch in (OPENS, ENDS):
            if session is not None:
                self._remove(session)
            if request.session_epoch == ENDS:
                return None
            return Opening(self, request, Session(NO_SESSION, principal, has_ids, now_ms))
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.has_ids != has_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        session.epoch = next_epoch(session.epoch)
        session.used_ms = now_ms
        self._by_id.move_to_end(session.id)
        return Following(self, request, session)

    def has_room(self, new: Session, count: int) -> bool:
        """Room for a session of `count` partitions is made, if that is possible."""
        until_ms, size = self._full
        if count > self._most_partitions or not self._most:
            return False
        if new.begun_ms < until_ms and count <= size:
            return False
        while len(self._by_id) >= self._most or self.partitions + count > self._most_partitions:
            session = self._evictable(new.begun_ms, count)
            if session is None:
                self._full = (new.begun_ms + LOOK_AGAIN_MS, count)
                return False
            self._remove(session)
            self.evictions += 1
        return True

    def _evictable(self, now_ms: int, count: int) -> Session | None:
        oldest = next(iter(self._by_id.values()), None)
        if oldest is None or now_ms - oldest.used_ms > self._eviction_ms:
            return oldest
        old = (each for each in self._by_id.values() if now_ms - each.begun_ms > self._eviction_ms)
        smallest = min(old, key=lambda each: (each.count, each.id), default=None)
        return smallest if smallest is not None and smallest.count <= count else None

    def open(self, session: Session) -> int:
        if not self.has_room(session, session.count):
            return NO_SESSION
        session.id = self._draw()
        while session.id in self._by_id:
            session.id = self._draw()
        self._by_id[session.id] = session
        self.partitions += session.count
        return session.id

    def forget(self, session_id: int) -> None:
        """The reader was not told what it was to be told."""
        session = self._by_id.get(session_id)
        if session is not None:
            self._remove(session)

    def keep(self, session: Session, wanted: FetchPartition, kept: dict[int, Kept]) -> None:
        """Added, or changed. Raises KafkaError where there is no room: it is read in full from now on."""
        one = kept.get(wanted.partition)
        if one is not None:
            one.wanted = wanted
            return
        if self.partitions >= self._most_partitions and session.id in self._by_id:
            self._remove(session)
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        kept[wanted.partition] = Kept(wanted)
        self._count(session, 1)

    def lose(self, session: Session, index: int, kept: dict[int, Kept]) -> None:
        if kept.pop(index, None) is not None:
            self._count(session, -1)
            if not session.count and session.id in self._by_id:
                self._remove(session)

    def _count(self, session: Session, more: int) -> None:
        session.count += more
        if session.id in self._by_id:  # nobody has taken it away meanwhile
            self.partitions += more

    def _remove(self, session: Session) -> None:
        del self._by_id[session.id]
        self.partitions -= session.count
        self._full = (0, -1)
