"""Transactions: what a coordinator answers in each state, in both versions of the protocol, and what readers see."""

import time
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from tests.peers.questions.asking import QUESTIONS, Question, question
from tests.raw import RawConnection, batch
from tests.raw.batches import HEADER

COMMIT, ABORT = True, False
TRANSACTIONAL = 0x10
PASSING = ("concurrent_transactions", "coordinator_load_in_progress", "coordinator_not_available", "not_coordinator")
PATIENCE_S = 20


class Who(NamedTuple):
    """A producer, as it names itself in a request."""

    name: str
    pid: int
    epoch: int


def _once_passed(ask: Any) -> Any:
    """Markers are written behind the answer, and a fresh broker has to make its topics: that passes."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        error = answer if isinstance(answer, str) else answer[0]
        if error not in PASSING or time.monotonic() > give_up:
            return answer
        time.sleep(0.02)


def find(c: RawConnection, key: str, key_type: int) -> str:
    answer = c.call("find_coordinator", 3, key=key, key_type=key_type)
    return str(answer.error_code.name)


def init_once(
    c: RawConnection, name: str | None, *, version: int = 4, timeout_ms: int = 60_000, pid: int = -1, epoch: int = -1
) -> tuple[str, int, int]:
    answer = c.call(
        "init_producer_id",
        version,
        transactional_id=name,
        transaction_timeout=timeout_ms,
        producer_id=pid,
        producer_epoch=epoch,
    )
    return answer.error_code.name, answer.producer_id, answer.producer_epoch


def begun(c: RawConnection, name: str, **more: Any) -> Who:
    _once_passed(lambda: find(c, name, 1))
    error, pid, epoch = _once_passed(lambda: init_once(c, name, **more))
    assert error == "none", error
    return Who(name, pid, epoch)


def add(c: RawConnection, who: Who, topic: str, *partitions: int, version: int = 3) -> list[str]:
    answer = c.call(
        "add_partitions_to_txn",
        version,
        v3_and_below_transactional_id=who.name,
        v3_and_below_producer_id=who.pid,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
    )
    results = answer.results_by_topic_v3_and_below
    return [
        name_of_code(each.partition_error_code)
        for topic in results
        for each in sorted(topic.results_by_partition, key=lambda one: int(one.partition_index))
    ]


def name_of_code(code: Any) -> str:
    return str(ErrorCode(int(code)).name)


def added(c: RawConnection, who: Who, topic: str, *partitions: int) -> None:
    assert _once_passed(lambda: add(c, who, topic, *partitions)[0]) == "none"


def write(
    c: RawConnection,
    who: Who,
    topic: str,
    sequence: int,
    *values: bytes,
    version: int = 9,
    partition: int = 0,
    attributes: int | None = TRANSACTIONAL,
    is_named: bool = True,
) -> str:
    records = batch(list(values or (b"x",)), pid=who.pid, epoch=who.epoch, sequence=sequence, attributes=attributes)
    answer = c.call(
        "produce",
        version,
        transactional_id=who.name if is_named else None,
        acks=-1,
        timeout=10_000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    )
    return str(answer.responses[0].partition_responses[0].error_code.name)


def written(c: RawConnection, who: Who, topic: str, sequence: int, *values: bytes, version: int = 9) -> None:
    answer = _once_passed(lambda: write(c, who, topic, sequence, *values, version=version))
    assert answer == "none", answer


def end_once(c: RawConnection, who: Who, is_commit: bool, version: int = 3) -> tuple[str, int, int]:
    answer = c.call(
        "end_txn",
        version,
        transactional_id=who.name,
        producer_id=who.pid,
        producer_epoch=who.epoch,
        committed=is_commit,
    )
    return answer.error_code.name, getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1)


def end(c: RawConnection, who: Who, is_commit: bool, version: int = 3) -> tuple[str, int]:
    """Once the one before it is through; the error, and the epoch behind it."""
    error, pid, epoch = _once_passed(lambda: end_once(c, who, is_commit, version))
    assert pid in (-1, who.pid)
    return error, epoch


def ended(c: RawConnection, who: Who, is_commit: bool, version: int = 3) -> Who:
    """Until every partition has its marker."""
    error, epoch = end(c, who, is_commit, version)
    assert error == "none", error
    give_up = time.monotonic() + PATIENCE_S
    while not state_of(c, who.name).startswith("Complete") and time.monotonic() < give_up:
        time.sleep(0.01)
    return who if version < 5 else who._replace(epoch=epoch)


def state_of(c: RawConnection, name: str) -> str:
    return str(described(c, name)[1])


def described(c: RawConnection, name: str) -> tuple[Any, ...]:
    """Read by hand: kio knows no time before 1970, and an id without a transaction began at -1."""
    c.ask("describe_transactions", 0, transactional_ids=[name])
    c.forget_asked()
    read = Reader(c.receive_bytes()[4 + 1 + 4 + 1 :])  # correlation id, tags, throttle time, one state
    error, _, state = read.number(2), read.text(), read.text()
    read.number(4)
    start_ms, _, epoch = read.number(8), read.number(8), read.number(2)
    topics = []
    for _ in range(read.count()):
        topic, indexes = read.text(), [read.number(4) for _ in range(read.count())]
        read.number(1)
        topics.append((len(topic) - len(name), sorted(indexes)))
    return ErrorCode(error).name, state, epoch, topics, start_ms if start_ms <= 0 else "a time"


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, size: int) -> int:
        taken, self._data = self._data[:size], self._data[size:]
        return int.from_bytes(taken, "big", signed=True)

    def count(self) -> int:
        return self.number(1) - 1

    def text(self) -> str:
        size = self.count()
        taken, self._data = self._data[:size], self._data[size:]
        return taken.decode()


def seen(c: RawConnection, topic: str, *, is_committed: bool, version: int = 11) -> object:
    """What one fetch tells of a partition: the batches, their kinds, and what was aborted."""
    newer: dict[str, Any] = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": []} if version >= 7 else {}
    answer = c.call(
        "fetch",
        version,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(is_committed),
        **newer,
        **({"rack_id": ""} if version >= 11 else {}),
        topics=[
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": 0,
                        "fetch_offset": 0,
                        "partition_max_bytes": 1 << 20,
                        **({"log_start_offset": -1} if version >= 5 else {}),
                        **({"current_leader_epoch": -1} if version >= 9 else {}),
                    }
                ],
            }
        ],
    )
    found = answer.responses[0].partitions[0]
    data, at, batches = bytes(found.records or b""), 0, []
    while at + HEADER.size <= len(data):
        fields = HEADER.unpack_from(data, at)
        batches.append((fields[0], fields[5] & 0x30, fields[6], fields[10]))
        at += fields[1] + 12
    aborted = None
    if found.aborted_transactions is not None:
        aborted = sorted(each.first_offset for each in found.aborted_transactions)
    return found.high_watermark, found.last_stable_offset, aborted, batches


def latest(c: RawConnection, topic: str, timestamp: int, isolation_level: int) -> tuple[str, int]:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    answer = c.call(
        "list_offsets",
        8,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": [wanted]}],
    )
    found = answer.topics[0].partitions[0]
    return found.error_code.name, found.offset


# --- initialising


@question
def transactions_find_their_coordinator(c: RawConnection, topic: str) -> object:
    return _once_passed(lambda: find(c, topic, 1)), find(c, "", 1), find(c, topic, 7)


@question
def transactions_begin_with_a_producer(c: RawConnection, topic: str) -> object:
    first = begun(c, topic)
    second = begun(c, topic)
    again = init_once(c, topic, pid=second.pid, epoch=second.epoch)
    retried = init_once(c, topic, pid=second.pid, epoch=second.epoch)
    old = init_once(c, topic, pid=second.pid, epoch=first.epoch)
    other = init_once(c, topic, pid=second.pid + 999, epoch=0)
    older = init_once(c, topic, pid=second.pid, epoch=first.epoch, version=3)
    epochs = [each[2] for each in (again, retried)]
    return first.pid == second.pid, first.epoch, second.epoch, epochs, [each[0] for each in (old, other, older)]


@question
def transactions_of_wrong_producers(c: RawConnection, topic: str) -> object:
    begun(c, topic)
    timeouts = [init_once(c, topic, timeout_ms=each)[0] for each in (0, -1, 900_001, 2**31 - 1)]
    halves = [init_once(c, topic, pid=pid, epoch=epoch)[0] for pid, epoch in ((5, -1), (-1, 5))]
    return timeouts, halves, init_once(c, "")[0], init_once(c, topic + "-new", pid=7, epoch=3)[0::2]


@question
def transactions_before_there_is_a_producer(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    begun(c, topic + "-other")
    who = Who(topic, 2**33, 0)
    return (
        add(c, who, topic, 0),
        [end_once(c, who, is_commit, version) for is_commit in (COMMIT, ABORT) for version in (1, 3, 5)],
        write(c, who, topic, 0),
        write(c, who, topic, 0, version=12),
        described(c, topic),
    )


# --- adding


@question
def transactions_add_partitions(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    who = begun(c, topic)
    return (
        add(c, who, topic, 0, 7),
        add(c, who, topic + "-none", 0),
        add(c, who, "__consumer_offsets", 0),
        add(c, who._replace(pid=who.pid + 99), topic, 0),
        add(c, who._replace(epoch=who.epoch + 1), topic, 0),
        add(c, who._replace(epoch=who.epoch + 1), topic, 0, version=1),
        add(c, who._replace(name=""), topic, 0),
        add(c, who, topic, 0),
        add(c, who, topic, 0, 1),
        described(c, topic),
    )


@question
def transactions_are_verified_for_brokers(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    who = begun(c, topic)
    added(c, who, topic, 0)
    found = []
    for verify_only, partitions, pid, epoch in (
        (True, [0], who.pid, 0),
        (True, [0, 1], who.pid, 0),
        (True, [0], who.pid + 99, 0),
        (True, [0], who.pid, 1),
        (True, [9], who.pid, 0),
        (False, [1], who.pid, 0),
        (True, [0, 1], who.pid, 0),
    ):
        transaction = {
            "transactional_id": who.name,
            "producer_id": pid,
            "producer_epoch": epoch,
            "verify_only": verify_only,
            "topics": [{"name": topic, "partitions": partitions}],
        }
        answer = c.call("add_partitions_to_txn", 5, transactions=[transaction])
        results = answer.results_by_transaction[0].topic_results[0].results_by_partition
        found.append(sorted((each.partition_index, name_of_code(each.partition_error_code)) for each in results))
    return found


# --- writing


@question
def transactions_take_only_what_was_added(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    who = begun(c, topic)
    return [write(c, who, topic, 0, version=version) for version in (9, 11, 12)]


@question
def transactions_take_what_belongs_to_them(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    who = begun(c, topic)
    added(c, who, topic, 0)
    return (
        write(c, who, topic, 0),
        write(c, who, topic, 0),
        write(c, who, topic, 5),
        write(c, who, topic, 1, attributes=0),
        write(c, who, topic, 1, is_named=False),
        write(c, who, topic, 1),
        write(c, who._replace(epoch=who.epoch + 1), topic, 0),
        write(c, who._replace(pid=who.pid + 99), topic, 0),
        seen(c, topic, is_committed=False),
        seen(c, topic, is_committed=True),
    )


@question
def transactions_of_the_second_version_begin_at_zero(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    who = begun(c, topic)
    return [write(c, who, topic, sequence, version=12) for sequence in (3, 0, 1)]


# --- ending


def _every_end(version: int) -> Question:
    def ask(c: RawConnection, topic: str) -> object:
        c.create_topic(topic)
        found: list[object] = []
        for is_commit in (COMMIT, ABORT):
            name = f"{topic}-{is_commit}"
            who = begun(c, name)
            found.append([end(c, who, COMMIT, version), described(c, name)[1]])
            for asked in (COMMIT, ABORT):
                added(c, who, topic, 0)
                written(c, who, topic, asked != COMMIT, version=9)
                others = [who._replace(epoch=9), who._replace(pid=who.pid + 99)]
                found.append([end(c, each, is_commit, version)[0] for each in others])
                after = ended(c, who, is_commit, version)
                found.append([end(c, who, each, version) for each in (is_commit, not is_commit)])
                found.append(described(c, name)[:3])
                if version >= 5:
                    break
                who = after
        return found

    return ask


for _version in (1, 3, 5):
    QUESTIONS[f"transactions end in version {_version}"] = _every_end(_version)


@question
def transactions_raise_the_epoch_with_each_end(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    who = begun(c, topic)
    found: list[object] = []
    for is_commit in (COMMIT, ABORT, COMMIT):
        written(c, who, topic, 0, version=12)
        after = ended(c, who, is_commit, 5)
        found.append((who.epoch, after.epoch, end(c, who, is_commit, 5), end(c, who, not is_commit, 5)))
        who = after
    found.append([end(c, who, COMMIT, 5), end(c, who, ABORT, 5)])
    return found, seen(c, topic, is_committed=True), described(c, topic)[:3]


@question
def transactions_of_the_second_version_abort_nothing(c: RawConnection, topic: str) -> object:
    who = begun(c, topic)
    found = []
    for _ in range(2):
        error, epoch = end(c, who, ABORT, 5)
        found.append((error, epoch))
        who = who._replace(epoch=epoch)
    return found


@question
def transactions_are_fenced_by_the_next_producer(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    old = begun(c, topic)
    added(c, old, topic, 0)
    written(c, old, topic, 0, b"a", b"b")
    first = init_once(c, topic)[0]
    new = begun(c, topic)
    return (
        first,
        new.pid == old.pid,
        new.epoch,
        write(c, old, topic, 2),
        write(c, old, topic, 2, version=12),
        add(c, old, topic, 0),
        end(c, old, COMMIT),
        end(c, old, COMMIT, 5),
        seen(c, topic, is_committed=True),
        seen(c, topic, is_committed=False),
    )


# --- reading


@question
def transactions_as_readers_see_them(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    one, other = begun(c, topic + "-1"), begun(c, topic + "-2")
    added(c, one, topic, 0)
    added(c, other, topic, 0)
    written(c, one, topic, 0, b"a", b"b")
    written(c, other, topic, 0, b"c")
    c.produce(topic, 0, batch([b"plain"]))
    open_ones = seen(c, topic, is_committed=True), latest(c, topic, -1, 1), latest(c, topic, -1, 0)
    ended(c, other, COMMIT)
    between = seen(c, topic, is_committed=True), seen(c, topic, is_committed=False), latest(c, topic, -3, 1)
    ended(c, one, ABORT)
    after = [seen(c, topic, is_committed=each) for each in (True, False)]
    versions = [seen(c, topic, is_committed=True, version=each) for each in (4, 7, 11, 12)]
    return open_ones, between, after, versions, latest(c, topic, -1, 1)


@question
def transactions_that_wrote_nothing(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    who = begun(c, topic)
    added(c, who, topic, 0)
    ended(c, who, ABORT)
    return seen(c, topic, is_committed=True)


# --- looking at them


@question
def transactions_are_listed(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    names = [f"{topic}-{each}" for each in ("empty", "open", "done")]
    whos = [begun(c, name) for name in names]
    for who in whos[1:]:
        added(c, who, topic, 0)
    ended(c, whos[2], COMMIT)

    def listed(version: int = 0, **filters: Any) -> object:
        answer = c.call("list_transactions", version, **filters)
        states = sorted(
            (each.transactional_id, each.transaction_state)
            for each in answer.transaction_states
            if each.transactional_id in names
        )
        places = {name: number for number, name in enumerate(names)}
        return (
            answer.error_code.name,
            sorted(answer.unknown_state_filters),
            [(places[name], state) for name, state in states],
        )

    return (
        listed(),
        listed(state_filters=["Ongoing"]),
        listed(state_filters=["Ongoing", "Nonsense"]),
        listed(state_filters=["Nonsense"]),
        listed(producer_id_filters=[whos[0].pid]),
        listed(1, duration_filter=-1),
        listed(1, duration_filter=3_600_000),
    )


@question
def transactions_are_described(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    who = begun(c, topic)
    at_first = described(c, topic), described(c, ""), described(c, topic + "-none")
    added(c, who, topic, 0)
    while_open = described(c, topic)
    written(c, who, topic, 0, b"a", b"b")
    before = _producer(c, who, topic)
    ended(c, who, COMMIT)
    return at_first, while_open, described(c, topic), before, _producer(c, who, topic)


def _producer(c: RawConnection, who: Who, topic: str) -> object:
    found = [each for each in c.describe_producers(topic, 0).active_producers if each.producer_id == who.pid]
    return [
        (each.producer_epoch, each.last_sequence, each.current_txn_start_offset, each.coordinator_epoch)
        for each in found
    ]


def mark(c: RawConnection, who: Who, topic: str, coordinator_epoch: int, is_commit: bool, version: int) -> object:
    marker = {
        "producer_id": who.pid,
        "producer_epoch": who.epoch,
        "transaction_result": is_commit,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": coordinator_epoch,
        **({"transaction_version": 2} if version >= 2 else {}),
    }
    answer = c.call("write_txn_markers", version, markers=[marker])
    return [name_of_code(each.error_code) for each in answer.markers[0].topics[0].partitions]


@question
def transactions_are_ended_by_an_administrator(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    begun(c, topic)
    who = begun(c, topic)
    added(c, who, topic, 0)
    written(c, who, topic, 0, b"a")
    return (
        mark(c, who._replace(epoch=who.epoch - 1), topic, 0, ABORT, 1),
        mark(c, who, topic + "-none", 0, ABORT, 1),
        mark(c, who, topic, 5, ABORT, 1),
        mark(c, who, topic, 4, COMMIT, 1),
        seen(c, topic, is_committed=True),
    )


# --- offsets


def offsets(
    c: RawConnection, who: Who, group: str, topic: str, offset: int, version: int = 3, **member: Any
) -> list[str]:
    partitions = [{"partition_index": index, "committed_offset": offset, "committed_metadata": ""} for index in (0, 9)]
    answer = c.call(
        "txn_offset_commit",
        version,
        transactional_id=who.name,
        group_id=group,
        producer_id=who.pid,
        producer_epoch=who.epoch,
        topics=[{"name": topic, "partitions": partitions}],
        **({"generation_id": -1, "member_id": "", **member} if version >= 3 else {}),
    )
    found = sorted(answer.topics[0].partitions, key=lambda one: int(one.partition_index))
    return [name_of_code(each.error_code) for each in found]


def fetched(c: RawConnection, group: str, topic: str, *, is_stable: bool) -> tuple[str, int]:
    answer = c.call(
        "offset_fetch",
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": [0]}],
        require_stable=is_stable,
    )
    if answer.error_code is not ErrorCode.none:
        return answer.error_code.name, -1
    found = answer.topics[0].partitions[0]
    return found.error_code.name, found.committed_offset


def add_offsets(c: RawConnection, who: Who, group: str, version: int = 3) -> str:
    answer = c.call(
        "add_offsets_to_txn",
        version,
        transactional_id=who.name,
        producer_id=who.pid,
        producer_epoch=who.epoch,
        group_id=group,
    )
    return str(answer.error_code.name)


@question
def transactions_commit_offsets(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    _once_passed(lambda: find(c, topic, 0))
    who, group = begun(c, topic), topic
    _once_passed(lambda: fetched(c, group, topic, is_stable=False))
    found: list[object] = [offsets(c, who, group, topic, 1)]
    for number, is_commit in enumerate((COMMIT, ABORT, COMMIT)):
        found.append(_once_passed(lambda: add_offsets(c, who, group)))
        found.append(offsets(c, who, group, topic, 10 + number))
        found.append([fetched(c, group, topic, is_stable=each) for each in (False, True)])
        ended(c, who, is_commit)
        give_up = time.monotonic() + PATIENCE_S
        while fetched(c, group, topic, is_stable=True)[0] != "none" and time.monotonic() < give_up:
            time.sleep(0.01)
        found.append([fetched(c, group, topic, is_stable=each) for each in (False, True)])
    return found


@question
def transactions_of_the_second_version_commit_offsets(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    _once_passed(lambda: find(c, topic, 0))
    who, group = begun(c, topic), topic
    _once_passed(lambda: fetched(c, group, topic, is_stable=False))
    first = _once_passed(lambda: offsets(c, who, group, topic, 5, version=5)[0])
    before = fetched(c, group, topic, is_stable=True)
    after = ended(c, who, COMMIT, 5)
    give_up = time.monotonic() + PATIENCE_S
    while fetched(c, group, topic, is_stable=True)[0] != "none" and time.monotonic() < give_up:
        time.sleep(0.01)
    return first, before, after.epoch, fetched(c, group, topic, is_stable=True), offsets(c, who, group, topic, 6, 5)


@question
def transactions_commit_offsets_for_members_only(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    _once_passed(lambda: find(c, topic, 0))
    who, group = begun(c, topic), topic
    _once_passed(lambda: add_offsets(c, who, group))
    return (
        offsets(c, who, group, topic, 5, generation_id=3),
        offsets(c, who, group, topic, 5, member_id="nobody"),
        offsets(c, who, group, topic, 5),
        offsets(c, who, group, topic, 5, generation_id=3),
        offsets(c, who, group, topic, 5, member_id="nobody"),
        offsets(c, who._replace(epoch=who.epoch + 1), group, topic, 5),
        add_offsets(c, who._replace(epoch=7), group),
        add_offsets(c, who._replace(epoch=7), group, version=1),
        add_offsets(c, who._replace(pid=who.pid + 9), group),
    )


# --- time


@question
def transactions_that_take_too_long(c: RawConnection, topic: str) -> object:
    """Kafka looks for them every ten seconds."""
    c.create_topic(topic)
    who = begun(c, topic, timeout_ms=100)
    added(c, who, topic, 0)
    written(c, who, topic, 0, b"a")
    give_up = time.monotonic() + PATIENCE_S + 10
    while state_of(c, topic) != "CompleteAbort" and time.monotonic() < give_up:
        time.sleep(0.05)
    return described(c, topic)[:3], end(c, who, COMMIT), write(c, who, topic, 1), begun(c, topic).epoch
