"""A broker that forgets a producer after three seconds, and a flow that has nothing to do for longer."""

import threading
from pathlib import Path

import pytest

from tests.peers.apache import quick_kafka
from tests.runner.flows import Billing

FORGETFUL = {"producer.id.expiration.ms": "3000", "producer.id.expiration.check.interval.ms": "200"}
LONGER_S = 5.0
SENT = (50, 1, 500)


@pytest.mark.thorough
@pytest.mark.timeout(180)
def test_silences_that_outlast_its_memory(topic: str, tmp_path: Path) -> None:
    pause = threading.Event()
    sent = 0
    with quick_kafka(tmp_path / "kafka", FORGETFUL) as kafka:
        billing = Billing(topic, kafka.bootstrap_servers)
        billing.make_topics()
        run = billing.flow().start(billing.properties)
        for count in SENT:
            billing.send(range(sent, sent + count))
            sent += count
            billing.wait_for(sent)
            pause.wait(LONGER_S)
        run.stop()
        assert run.exception() is None
        billing.check(sent)
        assert billing.state() == billing.totals(sent)
