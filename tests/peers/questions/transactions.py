"""Transactions: what a coordinator answers in each state, in both versions of the protocol, and what readers see."""

import time
from typing import Any

from tests.peers.questions.asking import QUESTIONS, Question, question
from tests.peers.questions.transacting import (
    ABORT,
    COMMIT,
    PATIENCE_S,
    Who,
    add,
    add_offsets,
    added,
    begun,
    described,
    end,
    end_once,
    ended,
    fetched,
    find,
    init_once,
    latest,
    mark,
    name_of_code,
    offsets,
    once_passed,
    producer,
    seen,
    state_of,
    write,
    written,
)
from tests.raw import RawConnection, batch

# --- initialising


@question
def transactions_find_their_coordinator(c: RawConnection, topic: str) -> object:
    return once_passed(lambda: find(c, topic, 1)), find(c, "", 1), find(c, topic, 7)


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
    before = producer(c, who, topic)
    ended(c, who, COMMIT)
    return at_first, while_open, described(c, topic), before, producer(c, who, topic)


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


@question
def transactions_commit_offsets(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    once_passed(lambda: find(c, topic, 0))
    who, group = begun(c, topic), topic
    once_passed(lambda: fetched(c, group, topic, is_stable=False))
    found: list[object] = [offsets(c, who, group, topic, 1)]
    for number, is_commit in enumerate((COMMIT, ABORT, COMMIT)):
        found.append(once_passed(lambda: add_offsets(c, who, group)))
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
    once_passed(lambda: find(c, topic, 0))
    who, group = begun(c, topic), topic
    once_passed(lambda: fetched(c, group, topic, is_stable=False))
    first = once_passed(lambda: offsets(c, who, group, topic, 5, version=5)[0])
    before = fetched(c, group, topic, is_stable=True)
    after = ended(c, who, COMMIT, 5)
    give_up = time.monotonic() + PATIENCE_S
    while fetched(c, group, topic, is_stable=True)[0] != "none" and time.monotonic() < give_up:
        time.sleep(0.01)
    return first, before, after.epoch, fetched(c, group, topic, is_stable=True), offsets(c, who, group, topic, 6, 5)


@question
def transactions_commit_offsets_for_members_only(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    once_passed(lambda: find(c, topic, 0))
    who, group = begun(c, topic), topic
    once_passed(lambda: add_offsets(c, who, group))
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
    c.create_topic(topic)
    who = begun(c, topic, timeout_ms=100)
    added(c, who, topic, 0)
    written(c, who, topic, 0, b"a")
    give_up = time.monotonic() + PATIENCE_S
    while state_of(c, topic) != "CompleteAbort" and time.monotonic() < give_up:
        time.sleep(0.05)
    return described(c, topic)[:3], end(c, who, COMMIT), write(c, who, topic, 1), begun(c, topic).epoch
