"""Fetch sessions: who applies what they are told sees what a full fetch would show; there is an end to all of it."""

import random
from typing import Any

import pytest

from oncelog.log.work_steps import at_once
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.fetch_sessions import AT_A_TIME, LAST_EPOCH, FetchSessions, Following, Found, Opening, next_epoch
from oncelog.wire.fetch_request import FetchPartition, FetchRequest
from oncelog.wire.hot import Fetched
from tests.depth import deeper, scaled

ANNA, BERT = "User:anna", "User:bert"
EVICTION_MS = 1000
Place = tuple[bytes, int]


def sessions(most: int = 3, most_partitions: int = 100) -> FetchSessions:
    chance = random.Random(7)
    return FetchSessions(most, EVICTION_MS, lambda: chance.randrange(1, 2**31), most_partitions)


def request(
    session_id: int, epoch: int, wanted: dict[Place, int] | None = None, forgotten: list[Place] | None = None
) -> FetchRequest:
    """By place: from which offset."""
    topics: dict[bytes, list[FetchPartition]] = {}
    for (topic, index), offset in (wanted or {}).items():
        topics.setdefault(topic, []).append(FetchPartition(index, -1, offset, 1))
    gone: dict[bytes, list[int]] = {}
    for topic, index in forgotten or []:
        gone.setdefault(topic, []).append(index)
    return FetchRequest(0, 1, 1, 0, session_id, epoch, list(topics.items()), list(gone.items()))


def found(places: Any, watermark: int = 0) -> Found:
    topics: dict[bytes, list[Fetched[Any]]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(Fetched(index, 0, watermark, 0, b""))
    return list(topics.items())


def asked(fetch: Opening | Following) -> dict[Place, int]:
    at_once(fetch.updating())
    return {(topic, each.partition): each.offset for topic, wanted in fetch.asked() for each in wanted}


def opened(kept: FetchSessions, count: int = 1, *, now_ms: int = 0, who: str = ANNA) -> int:
    places = [(b"t", index) for index in range(count)]
    fetch = kept.begin(request(0, 0, dict.fromkeys(places, 0)), who, now_ms, has_ids=False)
    assert isinstance(fetch, Opening)
    at_once(fetch.answering(found(asked(fetch))))
    return fetch.session_id


def followed(kept: FetchSessions, session_id: int, epoch: int, *, now_ms: int = 0, who: str = ANNA) -> ErrorCode | None:
    try:
        fetch = kept.begin(request(session_id, epoch), who, now_ms, has_ids=False)
    except KafkaError as refusal:
        return refusal.code
    assert isinstance(fetch, Following)
    at_once(fetch.answering(found(asked(fetch))))
    return None


# What is told


class Broker:
    """Partitions as a fetch finds them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.places: dict[Place, list[int]] = {}  # error, high watermark, stable offset, beginning, end

    def change(self) -> None:
        place = self._chance.choice([b"a", b"b", b"c"]), self._chance.randrange(3)
        state = self.places.setdefault(place, [0, 0, 0, 0, 0])
        match self._chance.randrange(6):
            case 0:
                state[0] = self._chance.choice([0, 6])
            case 1:
                state[4] += 1
            case 2:
                state[1] = state[4]
            case 3:
                state[2] = self._chance.randrange(state[3], state[1] + 1) if state[3] <= state[1] else state[1]
            case 4:
                state[3] = min(state[3] + 1, state[4])
            case 5:
                self.places.pop(place)

    def read(self, wanted: dict[Place, int], room: int) -> Found:
        """Of so many partitions there are records, in the order in which they were asked for."""
        topics: dict[bytes, list[Fetched[Any]]] = {}
        for (topic, index), offset in wanted.items():
            error, watermark, stable, beginning, _ = self.places.get((topic, index), [3, -1, -1, -1, -1])
            records = b""
            if error:
                watermark = stable = beginning = -1
            elif room and offset < watermark:
                records, room = b"%d" % offset, room - 1
            each = Fetched(index, error, watermark, beginning, records, stable_offset=stable)
            topics.setdefault(topic, []).append(each)
        return list(topics.items())


class Client:
    """One that keeps what it was told, as Java's does."""

    def __init__(self) -> None:
        self.session_id = self.epoch = 0
        self.wanted: dict[Place, int] = {}
        self.said: dict[Place, int] = {}  # what the server was told to fetch
        self.known: dict[Place, tuple[int, ...]] = {}
        self.read: dict[Place, int] = {}

    def request(self) -> FetchRequest:
        if self.epoch == 0:
            return request(self.session_id, 0, self.wanted)
        news = {place: offset for place, offset in self.wanted.items() if self.said.get(place) != offset}
        return request(self.session_id, self.epoch, news, [each for each in self.said if each not in self.wanted])

    def take(self, session_id: int, answer: Found) -> None:
        if self.epoch == 0:
            self.known = {}
        self.session_id, self.epoch = session_id, next_epoch(self.epoch) if session_id else 0
        self.said = dict(self.wanted)
        self.known = {place: known for place, known in self.known.items() if place in self.wanted}
        for topic, fetched in answer:
            for each in fetched:
                place = topic, each.partition_index
                assert place in self.wanted, "nobody asked for it"
                self.known[place] = (each.error_code, each.high_watermark, each.stable_offset, each.log_start_offset)
                if each.records:
                    assert int(each.records) == self.wanted[place]
                    self.wanted[place] += 1


@deeper
@pytest.mark.parametrize("seed", range(scaled(20)))
def test_who_applies_what_is_told_sees_what_a_full_fetch_shows(seed: int) -> None:
    """While partitions come, go, are forgotten and asked for again, answers are lost, and sessions end."""
    chance = random.Random(seed)
    kept, broker, client = sessions(most=2, most_partitions=12), Broker(chance), Client()
    for now_ms in range(400):
        for _ in range(chance.randrange(4)):
            broker.change()
        for _ in range(chance.randrange(3)):
            place = chance.choice([b"a", b"b", b"c"]), chance.randrange(3)
            if client.wanted.pop(place, None) is None:
                client.wanted[place] = 0
        if chance.random() < 0.05:
            opened(kept, chance.randrange(1, 9), now_ms=now_ms * 100)
        try:
            fetch = kept.begin(client.request(), ANNA, now_ms * 100, has_ids=False)
            wanted = client.wanted if fetch is None else asked(fetch)
        except KafkaError:
            client.session_id = client.epoch = 0
            continue
        full = broker.read(wanted, chance.randrange(3))
        assert wanted == client.wanted
        answer = full if fetch is None else at_once(fetch.answering(full))
        if chance.random() < 0.03:
            client.epoch = 0  # the answer is lost
            continue
        client.take(0 if fetch is None else fetch.session_id, answer)
        shown = {
            (topic, each.partition_index): (
                each.error_code,
                each.high_watermark,
                each.stable_offset,
                each.log_start_offset,
            )
            for topic, fetched in full
            for each in fetched
        }
        assert client.known == shown
        assert len(kept) <= 2 and kept.partitions <= 12


def test_what_gives_records_comes_last_the_next_time() -> None:
    kept = sessions()
    fetch = kept.begin(request(0, 0, {(b"t", 0): 0, (b"t", 1): 0, (b"u", 0): 0}), ANNA, 0, has_ids=False)
    assert fetch is not None
    at_once(fetch.answering(found(asked(fetch))))
    follow = kept.begin(request(fetch.session_id, 1), ANNA, 0, has_ids=False)
    assert follow is not None and list(asked(follow)) == [(b"t", 0), (b"t", 1), (b"u", 0)]
    at_once(follow.answering([(b"t", [Fetched(0, 0, 1, 0, b"records"), Fetched(1, 0, 0, 0, b"")])]))
    follow = kept.begin(request(fetch.session_id, 2), ANNA, 0, has_ids=False)
    assert follow is not None and list(asked(follow)) == [(b"u", 0), (b"t", 1), (b"t", 0)]


def test_a_fetch_that_is_overtaken_says_so_and_changes_nothing() -> None:
    kept = sessions(most_partitions=10 * AT_A_TIME)
    many = 3 * AT_A_TIME
    session_id = opened(kept, many)
    first = kept.begin(request(session_id, 1), ANNA, 0, has_ids=False)
    assert isinstance(first, Following)
    wanted = asked(first)
    steps = first.answering(found(wanted, 5))
    next(steps)
    second = kept.begin(request(session_id, 2), ANNA, 0, has_ids=False)
    assert isinstance(second, Following)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert (ended.value.value, first.error_code) == ([], ErrorCode.invalid_fetch_session_epoch)
    late = first.answering(found(wanted))
    assert at_once(late) == []
    said = at_once(second.answering(found(asked(second), 5)))
    assert sum(len(fetched) for _, fetched in said) >= many - AT_A_TIME


# Which session


def test_epochs_come_in_their_order_and_begin_again_behind_the_last() -> None:
    kept = sessions()
    session_id = opened(kept)
    assert followed(kept, session_id, 2) is ErrorCode.invalid_fetch_session_epoch
    assert [followed(kept, session_id, epoch) for epoch in (1, 2, 3)] == [None] * 3
    assert followed(kept, session_id, 3) is ErrorCode.invalid_fetch_session_epoch
    assert next_epoch(LAST_EPOCH) == 1


def test_a_session_by_names_is_none_by_ids() -> None:
    kept = sessions()
    session_id = opened(kept)
    with pytest.raises(KafkaError) as refused:
        kept.begin(request(session_id, 1), ANNA, 0, has_ids=True)
    assert refused.value.code is ErrorCode.fetch_session_topic_id_error
    assert followed(kept, session_id, 1) is None


def test_a_session_is_not_there_for_another_principal() -> None:
    kept = sessions()
    session_id = opened(kept)
    for epoch in (1, 2):
        assert followed(kept, session_id, epoch, who=BERT) is ErrorCode.fetch_session_id_not_found
    for epoch in (0, -1):  # it does not end by them either
        kept.begin(request(session_id, epoch), BERT, 0, has_ids=False)
    assert followed(kept, session_id, 1) is None


def test_a_full_fetch_ends_the_session_that_it_names() -> None:
    kept = sessions()
    for epoch in (0, -1):
        session_id = opened(kept, 5)
        kept.begin(request(session_id, epoch), ANNA, 0, has_ids=False)
        assert followed(kept, session_id, 1) is ErrorCode.fetch_session_id_not_found
        assert (len(kept), kept.partitions) == (0, 0)


# Bounds


def test_a_new_session_finds_no_room_among_those_in_use() -> None:
    kept = sessions(most=3)
    assert all(opened(kept) for _ in range(3))
    assert opened(kept, 50) == 0
    assert len(kept) == 3 and kept.evictions == 0


def test_a_session_that_nobody_uses_gives_way() -> None:
    kept = sessions(most=2)
    used, idle = opened(kept, 9), opened(kept, 9)
    assert followed(kept, used, 1, now_ms=EVICTION_MS) is None
    assert opened(kept, now_ms=EVICTION_MS) == 0
    new = opened(kept, now_ms=2 * EVICTION_MS + 1)
    assert new and kept.evictions == 1
    assert followed(kept, idle, 1, now_ms=2 * EVICTION_MS + 1) is ErrorCode.fetch_session_id_not_found
    assert followed(kept, used, 2, now_ms=2 * EVICTION_MS + 1) is None


def test_a_larger_session_takes_the_place_of_the_smallest_old_one() -> None:
    kept = sessions(most=2)
    small, large = opened(kept, 3), opened(kept, 9)
    later_ms = EVICTION_MS + 1
    assert [followed(kept, each, 1, now_ms=later_ms) for each in (small, large)] == [None, None]
    assert opened(kept, 2, now_ms=later_ms) == 0
    assert opened(kept, 3, now_ms=later_ms) != 0
    assert followed(kept, small, 2, now_ms=later_ms) is ErrorCode.fetch_session_id_not_found
    assert followed(kept, large, 2, now_ms=later_ms) is None


def test_no_more_partitions_are_kept_than_there_may_be() -> None:
    kept = sessions(most=10, most_partitions=20)
    assert opened(kept, 21) == 0 == len(kept)
    first, second = opened(kept, 10), opened(kept, 8)
    assert opened(kept, 3) == 0
    follow = kept.begin(request(second, 1, {(b"u", index): 0 for index in range(3)}), ANNA, 0, has_ids=False)
    assert isinstance(follow, Following)
    with pytest.raises(KafkaError) as refused:
        at_once(follow.updating())
    assert refused.value.code is ErrorCode.fetch_session_id_not_found
    assert followed(kept, second, 2) is ErrorCode.fetch_session_id_not_found
    assert followed(kept, first, 1) is None and kept.partitions == 10


def test_topics_without_partitions_are_not_kept() -> None:
    kept = sessions()
    names: list[tuple[bytes, list[FetchPartition]]] = [(b"%d" % number, []) for number in range(50)]
    opening = kept.begin(FetchRequest(0, 1, 1, 0, 0, 0, list(names)), ANNA, 0, has_ids=True)
    assert isinstance(opening, Opening)
    asked(opening)
    opening.names.update({name: "t" for name, _ in names})
    at_once(opening.answering([(name, []) for name, _ in names]))
    follow = kept.begin(FetchRequest(0, 1, 1, 0, opening.session_id, 1, list(names)), ANNA, 0, has_ids=True)
    assert isinstance(follow, Following)
    assert asked(follow) == {} and follow.names == {}


def test_no_room_is_looked_for_once_a_second() -> None:
    kept = sessions(most=2)
    both = [opened(kept, 3), opened(kept, 3)]
    late_ms = EVICTION_MS + 1
    for each in both:
        assert followed(kept, each, 1, now_ms=late_ms) is None
    assert opened(kept, 2, now_ms=late_ms) == 0
    assert opened(kept, 1, now_ms=late_ms) == 0
    assert opened(kept, 3, now_ms=late_ms) != 0, "a larger one is looked for anew"
