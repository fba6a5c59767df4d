"""What a connection sends is judged as its own, whatever is served or looked into in between."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from oncelog.embedded import Server
from oncelog.security.operations import Operation, Resource
from oncelog.server.bodies import LIGHT_BYTES, Look
from oncelog.server.broker import Broker
from oncelog.server.errors import ErrorCode
from tests.peers import rights
from tests.raw import RawConnection, ServerClosed, batch
from tests.raw.topics import new_topic
from tests.server.sasl_support import ANN
from tests.server.test_bound_pids import BEN, BINDS, by, send, served
from tests.server.test_flush import Gate
from tests.waiting import until

NOBODY: dict[str, Any] = {"topics": [], "allow_auto_topic_creation": False}
PAYMENTS: dict[str, Any] = {"transactional_id": "payments", "transaction_timeout": 60_000, "producer_id": -1}


def ask_in_transaction(raw: RawConnection, topic: str, packed: bytes) -> None:
    places = [{"name": topic, "partition_data": [{"index": 0, "records": packed}]}]
    raw.ask("produce", 9, transactional_id=PAYMENTS["transactional_id"], acks=-1, timeout=10_000, topic_data=places)


def test_who_is_served_in_the_middle_of_anothers_chunk_lends_it_no_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit wakes whoever waits at the partition, and what they sent behind is looked at there and then."""
    with (
        Server(settings={**rights.SETTINGS, "oncelog.flush": "every"}) as server,
        RawConnection(server.bootstrap_servers) as admin,
        RawConnection(server.bootstrap_servers, from_host=rights.THERE) as other,
    ):
        rights.open_to_one_host(admin)
        shared, hidden = new_topic(admin), new_topic(admin)
        rights.give(admin, [rights.rule(Resource.TOPIC, Operation.WRITE, name=shared)])
        assert other.call("metadata", 9, **NOBODY).brokers  # from now on such a request is answered at once
        gate = Gate(server, shared, monkeypatch)
        with admin.in_one_piece():
            admin.ask_produce(shared, 0, batch([b"waits for the disk"]))
            admin.ask("metadata", 9, **NOBODY)
        until(lambda: gate.flushes == 1, "the flush to begin")
        try:
            with other.in_one_piece():
                other.ask_produce(shared, 0, batch([b"x"]), acks=0)
                other.ask("metadata", 9, **NOBODY)
                other.ask_produce(hidden, 0, batch([b"x"]))
            assert other.answer().brokers
            assert other.produce_answer().error_code is ErrorCode.topic_authorization_failed
        finally:
            gate.open.set()
        assert admin.produce_answer().error_code is ErrorCode.none
        assert admin.answer().brokers
        assert admin.fetch(hidden, 0, 0).high_watermark == 0


@contextmanager
def neighbours() -> Iterator[tuple[RawConnection, int, RawConnection, int, str]]:
    """One whose pid is of a transaction, and one who sends beside: each with its pid, and their topic."""
    with (
        served(**BINDS, transaction_partition_verification_enable="false") as found,
        by(found, ANN) as ann,
        by(found, BEN) as ben,
    ):
        topic = new_topic(ann)
        own, _ = ben.init_producer_id()
        assert send(ben, topic, own, 0) is ErrorCode.none
        yield ann, ann.call("init_producer_id", 4, **PAYMENTS).producer_id, ben, own, topic


def test_what_comes_while_a_transactions_batch_is_looked_into_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    look, begun, may_end = Look.run, threading.Event(), threading.Event()

    def held(self: Look) -> None:
        begun.set()
        assert may_end.wait(30)
        look(self)

    monkeypatch.setattr(Look, "run", held)
    with neighbours() as (ann, granted, ben, own, topic):
        packed = batch([os.urandom(2 * LIGHT_BYTES)], pid=granted, epoch=0, sequence=0, codec=1)
        ask_in_transaction(ann, topic, packed)
        try:
            assert begun.wait(30)
            assert send(ben, topic, own, 1) is ErrorCode.none
        finally:
            may_end.set()
        assert ann.produce_answer().error_code is ErrorCode.none


def test_what_fails_in_a_transaction_takes_nothing_that_others_send_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with neighbours() as (ann, granted, ben, own, topic):

        def fails(*_: object) -> NoReturn:
            raise AssertionError("something that nobody has thought of")

        monkeypatch.setattr(Broker, "may_use_pid", fails)
        ask_in_transaction(ann, topic, batch([b"x"], pid=granted, epoch=0, sequence=0))
        with pytest.raises(ServerClosed):
            ann.answer()
        monkeypatch.undo()
        assert send(ben, topic, own, 1) is ErrorCode.none
