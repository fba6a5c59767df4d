"""A server's answers within a session, applied one after another, show what its full answers show."""

import random
from typing import Any

import pytest

from oncelog.embedded import Server
from tests.depth import deeper, scaled
from tests.raw import RawConnection, batch
from tests.server.test_fetch_sessions import Client, Place
from tests.waiting import until

ONE = batch([b"x" * 100])
PARTITIONS = 4


def called(raw: RawConnection, topic: str, client: Client, full: dict[Place, int] | None = None, **more: Any) -> Any:
    request = client.request()
    wanted = [(each.partition, each.offset) for _, asked in request.topics for each in asked]
    if full is not None:
        wanted = [(index, offset) for (_, index), offset in full.items()]
    partitions = [{"partition": at, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for at, offset in wanted]
    forgotten = [{"topic": topic, "partitions": list(indexes)} for _, indexes in request.forgotten]
    values: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 150, "isolation_level": 1}
    values |= {"session_id": client.session_id, "session_epoch": request.session_epoch}
    values |= {"topics": [{"topic": topic, "partitions": partitions}] if partitions else []}
    values |= {"forgotten_topics_data": forgotten}
    return raw.call("fetch", 11, **(values | more))


def shown(answer: Any) -> dict[Place, tuple[int, ...]]:
    return {
        (b"t", each.partition_index): (
            int(each.error_code),
            each.high_watermark,
            each.last_stable_offset,
            each.log_start_offset,
        )
        for topic in answer.responses
        for each in topic.partitions
    }


def change(raw: RawConnection, topic: str, chance: random.Random) -> None:
    index = chance.randrange(PARTITIONS)
    if chance.random() < 0.8:
        raw.produce(topic, index, ONE)
    else:
        topics = [{"name": topic, "partitions": [{"partition_index": index, "offset": -1}]}]
        raw.call("delete_records", 2, topics=topics, timeout=10_000)


@pytest.mark.parametrize("at_once", [500, 0])
@deeper
@pytest.mark.parametrize("seed", range(scaled(2)))
def test_a_session_shows_what_full_answers_show(monkeypatch: pytest.MonkeyPatch, at_once: int, seed: int) -> None:
    monkeypatch.setattr("oncelog.server.fetch.AT_ONCE", at_once)
    monkeypatch.setattr("oncelog.server.fetch_sessions.AT_A_TIME", 2 if at_once == 0 else 100)
    chance, client = random.Random(seed), Client()
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic("t", PARTITIONS)
        for _ in range(150):
            for _ in range(chance.randrange(3)):
                change(raw, "t", chance)
            place = b"t", chance.randrange(PARTITIONS + 1)
            if chance.random() < 0.2 and client.wanted.pop(place, None) is None:
                client.wanted[place] = 0
            for at, offset in client.wanted.items():  # where the log begins later, it depends on limits what is told
                client.wanted[at] = max(offset, server.call(lambda at=at: begin(server, at[1])))
            before = dict(client.wanted)
            answer = called(raw, "t", client)
            full = called(raw, "t", client, before, session_id=0, session_epoch=-1, forgotten_topics_data=[])
            assert not answer.error_code
            client.epoch = client.epoch + 1 if answer.session_id else 0
            client.session_id, client.said = answer.session_id, before
            known = client.known if client.epoch > 1 else {}
            client.known = {place: each for place, each in known.items() if place in before} | shown(answer)
            assert client.known == shown(full)
            for each in (part for topic in answer.responses for part in topic.partitions):
                if each.records:
                    client.wanted[b"t", each.partition_index] += 1
        read_to_the_end(server, raw, client)


def begin(server: Server, index: int) -> int:
    partition = server.broker.topics.partition("t", index)
    return 0 if partition is None else partition.log.log_start_offset


def read_to_the_end(server: Server, raw: RawConnection, client: Client) -> None:
    """Each partition's turn comes, though an answer has room for one batch."""
    client.wanted = {(b"t", index): server.call(lambda at=index: begin(server, at)) for index in range(PARTITIONS)}
    ends = {place: client.known.get(place, (0, 0))[1] for place in client.wanted}

    def is_read() -> bool:
        answer = called(raw, "t", client)
        client.epoch = client.epoch + 1 if answer.session_id else 0
        client.session_id, client.said = answer.session_id, dict(client.wanted)
        for each in (part for topic in answer.responses for part in topic.partitions):
            client.wanted[b"t", each.partition_index] += bool(each.records)
        return all(client.wanted[place] >= end for place, end in ends.items())

    until(is_read, "all to be read")
