"""What a connection sends is judged as its own, whatever is served or looked into in between."""

import os
import threading

import pytest

from oncelog.server.bodies import LIGHT_BYTES, Look
from oncelog.server.errors import ErrorCode
from tests.raw import batch
from tests.raw.topics import new_topic
from tests.server.sasl_support import ANN
from tests.server.test_bound_pids import BEN, BINDS, by, send, served


def test_what_comes_while_a_transactions_batch_is_looked_into_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    look, begun, may_end = Look.run, threading.Event(), threading.Event()

    def held(self: Look) -> None:
        begun.set()
        assert may_end.wait(30)
        look(self)

    monkeypatch.setattr(Look, "run", held)
    with (
        served(**BINDS, transaction_partition_verification_enable="false") as found,
        by(found, ANN) as ann,
        by(found, BEN) as ben,
    ):
        topic = new_topic(ann)
        own, _ = ben.init_producer_id()
        assert send(ben, topic, own, 0) is ErrorCode.none
        granted = ann.call(
            "init_producer_id", 4, transactional_id="payments", transaction_timeout=60_000, producer_id=-1
        )
        packed = batch([os.urandom(2 * LIGHT_BYTES)], pid=granted.producer_id, epoch=0, sequence=0, codec=1)
        ann.ask(
            "produce",
            9,
            transactional_id="payments",
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": packed}]}],
        )
        try:
            assert begun.wait(30)
            assert send(ben, topic, own, 1) is ErrorCode.none
        finally:
            may_end.set()
        assert ann.produce_answer().error_code is ErrorCode.none
