"""Fetch sessions: what opens one, what is left out of an answer, what ends one, and how a mistake is answered."""

from typing import Any

from tests.peers.questions.asking import question, settled
from tests.raw import RawConnection, Rec, batch

ONE = batch([Rec(value=b"v")])
INITIAL, FINAL = 0, -1


def part(index: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    return {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **more}


class Reader:
    """A client of one session; `told` is an answer without what differs from server to server."""

    def __init__(self, c: RawConnection, topic: str, version: int = 12) -> None:
        self._c, self._topic, self._version = c, topic, version
        self.session_id = 0
        self.topic_id: Any = None

    def named(self, topic: str | None = None) -> dict[str, Any]:
        if self._version < 13:
            return {"topic": topic or self._topic}
        if self.topic_id is None:
            self.topic_id = self.id_of(topic or self._topic)
        return {"topic_id": self.topic_id}

    def id_of(self, topic: str) -> Any:
        return self._c.call("metadata", 12, topics=[{"name": topic}]).topics[0].topic_id

    def fetch(
        self,
        epoch: int,
        *partitions: dict[str, Any],
        session_id: int | None = None,
        forgotten: tuple[int, ...] = (),
        version: int = 0,
        **more: Any,
    ) -> object:
        values: dict[str, Any] = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_epoch": epoch,
        }
        values |= {"session_id": self.session_id if session_id is None else session_id, "forgotten_topics_data": []}
        if forgotten:
            values["forgotten_topics_data"] = [{**self.named(), "partitions": forgotten}]
        values["topics"] = [{**self.named(), "partitions": partitions}] if partitions else []
        return self.told(self._c.call("fetch", version or self._version, **(values | more)))

    def told(self, answer: Any) -> object:
        before = self.session_id
        if answer.session_id:
            self.session_id = answer.session_id
        name = {0: "none", before: "the same"}.get(answer.session_id, "a new one")
        return (
            answer.error_code.name,
            name,
            [
                (each.partition_index, each.error_code.name, each.high_watermark, len(each.records or b""))
                for topic in answer.responses
                for each in topic.partitions
            ],
        )


def filled(c: RawConnection, topic: str, partitions: int = 3) -> None:
    c.create_topic(topic, partitions=partitions)
    c.await_leaders(topic, range(partitions))
    c.produce(topic, 0, ONE)


@question
def a_session_tells_what_has_changed(c: RawConnection, topic: str) -> object:
    answers = []
    for version in (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17):
        name = f"{topic}-{version}"
        filled(c, name)
        reader = Reader(c, name, version)
        answers += [
            reader.fetch(INITIAL, part(0), part(1), part(2)),
            reader.fetch(1, part(0, 1)),
            reader.fetch(2),
        ]
        c.produce(name, 1, ONE)
        answers += [reader.fetch(3), reader.fetch(4), reader.fetch(5, part(1, 1)), reader.fetch(6)]
    return answers


@question
def partitions_come_and_go_in_a_session(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    reader = Reader(c, topic)
    return [
        reader.fetch(INITIAL, part(0, 1)),
        reader.fetch(1, part(1)),
        reader.fetch(2, forgotten=(0, 7)),
        reader.fetch(3, part(0)),
        reader.fetch(4, part(0, 1), forgotten=(0,)),
        reader.fetch(5),
        reader.fetch(6, part(2), forgotten=(1,)),
        reader.fetch(7, part(9)),
        reader.fetch(8),
        reader.fetch(9, part(2, 77)),
        reader.fetch(10),
    ]


@question
def a_session_ends_with_its_last_partition(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    reader = Reader(c, topic)
    opened = reader.fetch(INITIAL, part(0))
    return opened, reader.fetch(1, forgotten=(0,)), reader.fetch(2), reader.fetch(1)


@question
def a_session_of_no_partitions(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    reader = Reader(c, topic)
    return reader.fetch(INITIAL), reader.fetch(1, part(0)), reader.fetch(2)


@question
def epochs_that_do_not_fit(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    reader = Reader(c, topic)
    return [
        reader.fetch(INITIAL, part(0, 1)),
        reader.fetch(2),
        reader.fetch(1),
        reader.fetch(1),
        reader.fetch(-2),
        reader.fetch(2),
        reader.fetch(2**31 - 1),
        reader.fetch(3, session_id=0),
        reader.fetch(3, session_id=-7),
        reader.fetch(3),
    ]


@question
def a_full_fetch_ends_the_session_that_it_names(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    one, other = Reader(c, topic), Reader(c, topic)
    answers = [one.fetch(INITIAL, part(0, 1)), other.fetch(INITIAL, part(0, 1))]
    first = one.session_id
    answers += [one.fetch(INITIAL, part(0)), one.fetch(1, session_id=first), one.fetch(1), other.fetch(1)]
    answers += [one.fetch(FINAL, part(0)), one.fetch(2), other.fetch(FINAL), other.fetch(2)]
    return answers


@question
def a_fetch_without_a_session(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    reader = Reader(c, topic)
    return reader.fetch(FINAL, part(0)), reader.fetch(FINAL, part(0, 1), session_id=77), reader.fetch(FINAL)


@question
def a_session_by_names_is_none_by_ids(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    by_name, by_id = Reader(c, topic, 12), Reader(c, topic, 13)
    return [
        by_name.fetch(INITIAL, part(0, 1)),
        by_id.fetch(INITIAL, part(0, 1)),
        by_name.fetch(1, version=13),
        by_id.fetch(1, version=12),
        by_name.fetch(1),
        by_id.fetch(1),
        by_name.fetch(2, version=7),
    ]


@question
def a_session_by_another_connection(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    reader = Reader(c, topic)
    opened = reader.fetch(INITIAL, part(0, 1))
    with RawConnection(c.socket.getpeername()[1]) as other:
        again = Reader(other, topic)
        again.session_id = reader.session_id
        return opened, again.fetch(1), reader.fetch(1), reader.fetch(2)


@question
def a_topic_that_goes_and_comes_in_a_session(c: RawConnection, topic: str) -> object:
    answers: list[object] = []
    for version in (12, 17):
        name = f"{topic}-{version}"
        filled(c, name)
        reader = Reader(c, name, version)
        answers.append(reader.fetch(INITIAL, part(0, 1), part(1)))
        epochs = iter(range(1, 10_000))
        c.delete_topic(name)

        def code(reader: Reader = reader, epochs: Any = epochs) -> object:
            found: Any = reader.fetch(next(epochs))
            return found[2][0][1] if found[2] else found[0]

        answers.append(settled(code, "unknown_topic_or_partition", 2))
        filled(c, name)
        answers.append(settled(code, "inconsistent_topic_id" if version > 12 else "offset_out_of_range", 2))
    return answers


@question
def a_topic_that_is_not_there_yet_in_a_session(c: RawConnection, topic: str) -> object:
    reader = Reader(c, topic)
    answers = [reader.fetch(INITIAL, part(0)), reader.fetch(1), reader.fetch(2)]
    filled(c, topic)
    return *answers, reader.fetch(3), reader.fetch(4, part(0, 1)), reader.fetch(5)


@question
def more_than_an_answer_takes_comes_in_turn(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    for index in (0, 1, 2):
        c.produce(topic, index, ONE)
    reader = Reader(c, topic)
    told = [reader.fetch(INITIAL, part(0), part(1), part(2), max_bytes=1)]
    return told + [reader.fetch(epoch, max_bytes=1) for epoch in range(1, 5)]
