"""DESIGN 3.3, case by case: what a broker answers to producer ids of InitProducerId.

Each case is a transcript: what is sent, and what Apache Kafka answers. The same script is put to both servers. oncelog
must give Kafka's answers; the one improvement that is allowed is written at the step as `or_better`.
"""

import itertools
from dataclasses import dataclass, replace

import pytest

from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, batch

OK = "none"
OUT_OF_ORDER = "out_of_order_sequence_number"
OLD_EPOCH = "invalid_producer_epoch"
DUPLICATE = "duplicate_sequence_number"
TOP = 2**31 - 1  # the last sequence number; 0 follows

_never_granted = itertools.count(10**12)


@dataclass(frozen=True, slots=True)
class Send:
    """Records `first … first + count - 1` of the case's producer in this epoch."""

    first: int
    count: int = 1
    epoch: int = 0
    answer: str = OK
    offset: int = -1  # where an accepted batch begins
    or_better: str | None = None
    value: bytes = b"x"

    def at(self, offset: int) -> "Send":
        return replace(self, answer=OK, offset=offset)

    def refused(self, answer: str, or_better: str | None = None) -> "Send":
        return replace(self, answer=answer, offset=-1, or_better=or_better)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    steps: tuple[Send, ...]
    knows: tuple[int, int] | None  # epoch and last sequence that DescribeProducers tells at the end
    granted: bool = True  # by InitProducerId; otherwise a producer id that the server never gave out


def eight_batches() -> tuple[Send, ...]:
    return tuple(Send(3 * i, 3).at(3 * i) for i in range(8))


CASES = [
    Case("in order", eight_batches(), knows=(0, 23)),
    Case("the last five again", (*eight_batches(), *(Send(s, 3).at(s) for s in (21, 18, 15, 12, 9))), knows=(0, 23)),
    Case(
        "again with other bytes under the same numbers",
        (Send(0, 3).at(0), Send(0, 3, value=b"other").at(0)),
        knows=(0, 2),
    ),
    Case(
        "older than the last five",
        (*eight_batches(), *(Send(s, 3).refused(OUT_OF_ORDER, or_better=DUPLICATE) for s in (6, 3, 0))),
        knows=(0, 23),
    ),
    Case(
        "the window moves on",
        (*eight_batches(), Send(24).at(24), Send(9, 3).refused(OUT_OF_ORDER, or_better=DUPLICATE), Send(12, 3).at(12)),
        knows=(0, 24),
    ),
    Case("a gap of one", (Send(0, 3).at(0), Send(4).refused(OUT_OF_ORDER), Send(3).at(3)), knows=(0, 3)),
    Case("a wide gap", (Send(0, 3).at(0), Send(2**30 + 9).refused(OUT_OF_ORDER)), knows=(0, 2)),
    Case("a partial overlap", (*eight_batches(), Send(21, 5).refused(OUT_OF_ORDER)), knows=(0, 23)),
    Case(
        "the front of a remembered batch",
        (Send(0, 3).at(0), Send(0, 2).refused(OUT_OF_ORDER, or_better=DUPLICATE)),
        knows=(0, 2),
    ),
    Case(
        "the end of a remembered batch",
        (Send(0, 3).at(0), Send(1, 2).refused(OUT_OF_ORDER, or_better=DUPLICATE)),
        knows=(0, 2),
    ),
    Case(
        "two remembered batches as one",
        (Send(0, 3).at(0), Send(3, 3).at(3), Send(0, 6).refused(OUT_OF_ORDER, or_better=DUPLICATE)),
        knows=(0, 5),
    ),
    Case("a higher epoch from zero", (Send(0, 3).at(0), Send(0, epoch=1).at(3)), knows=(1, 0)),
    Case("an epoch that skips ahead", (Send(0, 3).at(0), Send(0, epoch=7).at(3)), knows=(7, 0)),
    Case(
        "a higher epoch that goes on counting",
        (Send(0, 3).at(0), Send(3, epoch=1).refused(OUT_OF_ORDER), Send(3).at(3)),
        knows=(0, 3),
    ),
    Case(
        "a higher epoch far from zero",
        (Send(0, 3).at(0), Send(500, epoch=1).refused(OUT_OF_ORDER)),
        knows=(0, 2),
    ),
    Case(
        "a lower epoch",
        (Send(0, 3).at(0), Send(0, epoch=1).at(3), Send(3).refused(OLD_EPOCH), Send(1, epoch=1).at(4)),
        knows=(1, 1),
    ),
    Case(
        "a duplicate of a lower epoch",
        (Send(0, 3).at(0), Send(0, epoch=1).at(3), Send(0, 3).refused(OLD_EPOCH)),
        knows=(1, 0),
    ),
    Case(
        "a batch of the new epoch again",
        (Send(0, 3).at(0), Send(0, 2, epoch=1).at(3), Send(0, 2, epoch=1).at(3)),
        knows=(1, 1),
    ),
    Case(
        "the highest epoch does not wrap",
        (Send(0, epoch=32767).at(0), Send(0, epoch=0).refused(OLD_EPOCH), Send(1, epoch=32767).at(1)),
        knows=(32767, 1),
    ),
    Case("an unknown producer id from zero", (Send(0, 2).at(0), Send(2).at(2)), knows=(0, 2), granted=False),
    Case("an unknown producer id from seven", (Send(7, 2).at(0), Send(9).at(2)), knows=(0, 9), granted=False),
    Case(
        "an unknown producer id in a later epoch",
        (Send(5, epoch=3).at(0), Send(6, epoch=3).at(1)),
        knows=(3, 6),
        granted=False,
    ),
    Case(
        "nothing below a first sequence above zero was seen",
        (Send(7, 2).at(0), Send(5, 2).refused(OUT_OF_ORDER), Send(0, 2).refused(OUT_OF_ORDER)),
        knows=(0, 8),
        granted=False,
    ),
    Case(
        "the sequence wraps between batches",
        (Send(TOP - 1, 2).at(0), Send(0, 2).at(2), Send(2).at(4)),
        knows=(0, 2),
        granted=False,
    ),
    Case(
        "the sequence wraps within a batch",
        (Send(TOP - 1, 4).at(0), Send(2, 2).at(4), Send(TOP - 1, 4).at(0), Send(2, 2).at(4)),
        knows=(0, 3),
        granted=False,
    ),
    Case(
        "a gap across the wrap",
        (Send(TOP, 1).at(0), Send(1).refused(OUT_OF_ORDER), Send(0).at(1)),
        knows=(0, 0),
        granted=False,
    ),
]


def transcript(server: ServerProcess, topic: str, case: Case) -> tuple[list[tuple[str, int]], list[tuple[int, int]]]:
    with RawConnection(server.port) as connection:
        connection.create_topic(topic)
        pid = connection.init_producer_id()[0] if case.granted else next(_never_granted)
        answers = []
        for step in case.steps:
            sent = batch([step.value] * step.count, pid=pid, epoch=step.epoch, sequence=step.first)
            answer = connection.produce(topic, 0, sent)
            answers.append((answer.error_code.name, answer.base_offset))
        producers = connection.describe_producers(topic, 0).active_producers
        known = [(one.producer_epoch, one.last_sequence) for one in producers if one.producer_id == pid]
        return answers, known


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_both_servers_give_this_answer(server: ServerProcess, topic: str, case: Case) -> None:
    answers, known = transcript(server, topic, case)
    better_is_fine = server.name == "oncelog"
    for number, (step, (error, offset)) in enumerate(zip(case.steps, answers, strict=True)):
        if better_is_fine and step.or_better is not None and error == step.or_better:
            continue
        assert (error, offset) == (step.answer, step.offset), f"step {number}: {step}"
    assert known == ([] if case.knows is None else [case.knows])


def test_records_of_a_refused_batch_are_not_in_the_log(server: ServerProcess, raw: RawConnection, topic: str) -> None:
    raw.create_topic(topic)
    pid, epoch = raw.init_producer_id()
    for first in (0, 5, 0, 1):
        raw.produce(topic, 0, batch([b"x"], pid=pid, epoch=epoch, sequence=first))
    assert raw.offset_at(topic, 0, -1).offset == 2


def test_producers_count_in_each_partition_on_their_own(raw: RawConnection, topic: str) -> None:
    raw.create_topic(topic, partitions=2)
    pid, epoch = raw.init_producer_id()
    for partition in (0, 1):
        for first in (0, 1):
            answer = raw.produce(topic, partition, batch([b"x"], pid=pid, epoch=epoch, sequence=first))
            assert (answer.error_code.name, answer.base_offset) == (OK, first)


def test_a_pipelined_gap_refuses_all_that_follows_it(raw: RawConnection, topic: str) -> None:
    raw.create_topic(topic)
    pid, epoch = raw.init_producer_id()
    for first in (0, 1, 3, 4):
        raw.ask_produce(topic, 0, batch([b"x"], pid=pid, epoch=epoch, sequence=first))
    assert [raw.produce_answer().error_code.name for _ in range(4)] == [OK, OK, OUT_OF_ORDER, OUT_OF_ORDER]


def test_the_producers_are_the_same_after_a_restart(tmp_path_factory: pytest.TempPathFactory, topic: str) -> None:
    """Kafka's own restart is not asked: what must hold is that oncelog's answers do not change."""
    server = OncelogProcess(tmp_path_factory.mktemp("restart"))
    with server:
        with RawConnection(server.port) as connection:
            connection.create_topic(topic)
            pid, epoch = connection.init_producer_id()
            for first in (0, 3):
                connection.produce(topic, 0, batch([b"x"] * 3, pid=pid, epoch=epoch, sequence=first))
        server.kill()
        server.start()
        with RawConnection(server.port) as connection:
            known = [(p.producer_id, p.last_sequence) for p in connection.describe_producers(topic, 0).active_producers]
            assert known == [(pid, 5)]
            again = connection.produce(topic, 0, batch([b"x"] * 3, pid=pid, epoch=epoch, sequence=3))
            assert (again.error_code.name, again.base_offset) == (OK, 3)
            gap = connection.produce(topic, 0, batch([b"x"], pid=pid, epoch=epoch, sequence=7))
            assert gap.error_code.name == OUT_OF_ORDER
