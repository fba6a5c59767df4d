"""`oncelog.bind.pids`: whom a pid is good for, at a server, after its end, and at another broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Producer
from oncelog.embedded import Server
from oncelog.producers import FIRST_BOUND_PID, FIRST_KAFKA_PID
from oncelog.server.errors import ErrorCode
from oncelog.server.produce_turns import AT_ONCE
from oncelog.server.users import add_user
from oncelog.wire.own import LEASE_PID_KEY
from tests.raw import RawConnection, batch
from tests.raw.sasl import prove
from tests.raw.topics import new_topic
from tests.server.sasl_support import ANN, PASSWORD, Guarded, guarded
from tests.waiting import until

BEN = "ben"
MECHANISM = "SCRAM-SHA-256"
NOT_YOURS = ErrorCode.cluster_authorization_failed
BINDS = {"oncelog_bind_pids": "true"}


@contextmanager
def served(**settings: str) -> Iterator[Guarded]:
    with guarded(**settings) as found:
        found.server.call(add_user, found.server.broker, BEN, PASSWORD)
        yield found


def by(found: Guarded, name: str) -> RawConnection:
    raw = found.connected()
    prove(raw, name, PASSWORD, MECHANISM)
    return raw


def send(raw: RawConnection, topic: str, pid: int, sequence: int, partition: int = 0) -> ErrorCode:
    answer = raw.produce(topic, partition, batch([b"x"], pid=pid, epoch=0, sequence=sequence))
    return ErrorCode(answer.error_code)


def written(found: Guarded, topic: str) -> int:
    partition = found.server.broker.topics.partition(topic, 0)
    assert partition is not None
    return partition.log.next_offset


def test_a_pid_is_good_for_its_principal_on_every_connection_and_for_nobody_else() -> None:
    with served(**BINDS) as found, by(found, ANN) as ann, by(found, ANN) as again, by(found, BEN) as ben:
        topic = new_topic(ann)
        pid, _ = ann.init_producer_id()
        assert pid >= FIRST_BOUND_PID
        assert send(ann, topic, pid, 0) is ErrorCode.none
        own, _ = ben.init_producer_id()
        assert [send(ben, topic, own, 0), send(ben, topic, own, 1)] == [ErrorCode.none] * 2
        for sequence in (1, 0, 7):
            assert send(ben, topic, pid, sequence) is NOT_YOURS, "also on a connection that is recognised"
        with RawConnection(found.open_address) as anonymous:
            assert send(anonymous, topic, pid, 1) is NOT_YOURS
        assert written(found, topic) == 3
        assert send(again, topic, pid, 1) is ErrorCode.none
        assert send(ann, topic, pid, 2) is ErrorCode.none


def test_a_request_that_is_staged_in_turns_is_asked_as_well() -> None:
    with served(**BINDS) as found, by(found, ANN) as ann, by(found, BEN) as ben:
        topic = new_topic(ann, partitions=AT_ONCE + 1)
        pid, _ = ann.init_producer_id()
        records = batch([b"x"], pid=pid, epoch=0, sequence=0)
        data = [{"index": index, "records": records} for index in range(AT_ONCE + 1)]
        told = []
        for raw in (ben, ann):
            answer = raw.call(
                "produce",
                9,
                transactional_id=None,
                acks=-1,
                timeout=10_000,
                topic_data=[{"name": topic, "partition_data": data}],
            )
            told.append({ErrorCode(each.error_code) for each in answer.responses[0].partition_responses})
        assert told == [{NOT_YOURS}, {ErrorCode.none}]


def test_where_it_is_off_a_pid_is_anybodys() -> None:
    with served() as found, by(found, ANN) as ann, by(found, BEN) as ben:
        topic = new_topic(ann)
        pid, _ = ann.init_producer_id()
        assert FIRST_KAFKA_PID <= pid < FIRST_BOUND_PID
        assert [send(ann, topic, pid, 0), send(ben, topic, pid, 1)] == [ErrorCode.none] * 2


def test_it_holds_over_an_end_and_goes_by_what_is_set_now(tmp_path: Path) -> None:
    """What was granted before it was set stays anybody's, so nobody's producer fails when it is switched on."""
    folder = {"log_dir": str(tmp_path)}
    with served(**folder) as found, by(found, ANN) as ann:
        topic = new_topic(ann)
        before, _ = ann.init_producer_id()
        assert send(ann, topic, before, 0) is ErrorCode.none
    with served(**folder, **BINDS) as found, by(found, ANN) as ann, by(found, BEN) as ben:
        bound, _ = ann.init_producer_id()
        assert [send(ann, topic, bound, 0), send(ben, topic, bound, 1)] == [ErrorCode.none, NOT_YOURS]
        assert [send(ann, topic, before, 1), send(ben, topic, before, 2)] == [ErrorCode.none] * 2
    with served(**folder, **BINDS) as found, by(found, ANN) as ann, by(found, BEN) as ben:
        assert [send(ben, topic, bound, 1), send(ann, topic, bound, 1)] == [NOT_YOURS, ErrorCode.none]
    with served(**folder) as found, by(found, BEN) as ben:
        assert send(ben, topic, bound, 2) is ErrorCode.none


def test_there_are_no_leases_since_they_would_be_anybodys() -> None:
    with served(**BINDS) as found, by(found, ANN) as ann:
        topic = new_topic(ann)
        listed = ann.call("api_versions", 3, client_software_name="raw", client_software_version="1").api_keys
        assert LEASE_PID_KEY not in {each.api_key for each in listed}
        answer = ann.call("lease_pid", 0, topics=[{"name": topic, "partitions": [0]}])
        assert answer.topics[0].partitions[0].error_code == ErrorCode.unsupported_version


# Transactions


def test_pids_of_a_transactional_id_are_good_by_it_alone() -> None:
    """Whoever else may use the transactional id goes on with them, as in Kafka; nobody outside of it does."""
    from confluent_kafka import Producer as Transactional

    with served(**BINDS, transaction_partition_verification_enable="false") as found, by(found, BEN) as ben:
        config = {**sasl(found, ANN), "transactional.id": "payments"}
        topic = new_topic(ben)
        first, second = Transactional(config), Transactional({**config, "sasl.username": BEN})
        for producer in (first, second):
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce(topic, b"x")
            producer.commit_transaction(30)
        partition = found.server.broker.topics.partition(topic, 0)
        assert partition is not None
        (pid,) = partition.log.producers.live_pids(found.clock.now())
        assert pid >= FIRST_BOUND_PID
        assert send(ben, topic, pid, 5) is NOT_YOURS
        own = ben.call("init_producer_id", 4, transactional_id="other", transaction_timeout=60_000, producer_id=-1)
        assert own.error_code == 0
        before = written(found, topic)
        for named, code in (("other", ErrorCode.invalid_producer_id_mapping), (None, NOT_YOURS)):
            data = {"index": 0, "records": batch([b"x"], pid=pid, epoch=9, sequence=0)}
            answer = ben.call(
                "produce",
                9,
                transactional_id=named,
                acks=-1,
                timeout=10_000,
                topic_data=[{"name": topic, "partition_data": [data]}],
            )
            assert answer.responses[0].partition_responses[0].error_code == code
        assert written(found, topic) == before


# Clients


def sasl(found: Guarded, name: str) -> dict[str, str]:
    return {
        "bootstrap.servers": found.address,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": MECHANISM,
        "sasl.username": name,
        "sasl.password": PASSWORD,
    }


def test_a_saved_producer_goes_on_elsewhere_for_the_same_user_alone() -> None:
    with served(**BINDS) as found:
        with Producer(sasl(found, ANN)) as producer:
            producer.list_topics("orders")
            producer.pin("orders")
            saved = producer.saved().to_json()
            for number in range(10):
                producer.produce("orders", f"{number}", partition=0)
            producer.flush()
        assert written(found, "orders") == 10
        codes: list[Any] = []
        with Producer(sasl(found, BEN), saved=saved) as other:
            for number in range(20):
                other.produce("orders", f"{number}", partition=0, on_delivery=lambda e, _: codes.append(e and e.code()))
            other.flush(30)
        assert codes == [None] * 10 + [NOT_YOURS.value] * 10, "what stands there is recognised, and no more is written"
        assert written(found, "orders") == 10
        with Producer(sasl(found, ANN), saved=saved) as again:
            for number in range(20):
                again.produce("orders", f"{number}", partition=0)
            again.flush()
        assert written(found, "orders") == 20


def test_a_producer_that_was_saved_under_a_lease_goes_on_when_pids_are_bound(tmp_path: Path) -> None:
    folder = {"log_dir": str(tmp_path)}

    def send_all(found: Guarded, saved: str | None, count: int) -> str:
        with Producer(sasl(found, ANN), saved=saved) as producer:
            if saved is None:
                producer.list_topics("orders")
                producer.pin("orders")
                saved = producer.saved().to_json()
            for number in range(count):
                producer.produce("orders", f"{number}", partition=0)
            producer.flush()
        return saved

    with served(**folder) as found:
        saved = send_all(found, None, 10)
        partition = found.server.broker.topics.partition("orders", 0)
        assert partition is not None and max(partition.log.producers.live_pids(found.clock.now())) < FIRST_KAFKA_PID
    with served(**folder, **BINDS) as found:
        send_all(found, saved, 20)
        assert written(found, "orders") == 21, "and one place for the fence of its lease"


def test_librdkafka_takes_the_refusal_for_final(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be made to use another's pid; so for once its own is another's."""
    from confluent_kafka import Producer as Librdkafka

    with served(**BINDS) as found:
        monkeypatch.setattr(found.server.broker, "may_use_pid", lambda pid, owner: False)
        told: list[Any] = []
        producer = Librdkafka({**sasl(found, ANN), "enable.idempotence": True})
        producer.produce("orders", b"x", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(30) == 0
        assert [each.code() for each in told] == [NOT_YOURS.value]
        assert found.server.broker.metrics.requests[0] == 1, "it was not sent again"


# Other brokers


def test_every_broker_of_a_cluster_knows_whose_a_pid_is() -> None:
    with Server(brokers=2, settings={"oncelog.bind.pids": "true", "num.partitions": "2"}) as server:
        at_each_broker(server)


@pytest.mark.thorough
def test_a_new_leader_knows_whose_a_pid_is_when_the_old_one_was_killed() -> None:
    with (
        Server(brokers=3, settings={"oncelog.bind.pids": "true"}) as server,
        Producer({"bootstrap.servers": server.bootstrap_servers}) as producer,
    ):

        def leader() -> int:
            found: int = producer.list_topics("orders").topics["orders"].partitions[0].leader
            return found

        def address(broker: int) -> str:
            found = producer.list_topics("orders").brokers[broker]
            return f"{found.host}:{found.port}"

        killed = leader()
        with RawConnection(address(killed)) as raw:
            pid, _ = raw.init_producer_id()
            assert send(raw, "orders", pid, 0) is ErrorCode.none
        server.kill(killed)
        until(lambda: leader() not in (killed, -1), "another one leads")
        with RawConnection(address(leader())) as raw:
            assert send(raw, "orders", pid ^ 1, 1) is NOT_YOURS
            assert send(raw, "orders", pid, 1) is ErrorCode.none


@pytest.mark.thorough
def test_every_worker_knows_whose_a_pid_is_also_after_an_end_of_all(tmp_path: Path) -> None:
    pid = -1
    for sequence in (0, 1):
        with Server(
            workers=2, data_dir=str(tmp_path), settings={"oncelog.bind.pids": "true", "num.partitions": "2"}
        ) as server:
            pid = at_each_broker(server, pid, sequence)


def at_each_broker(server: Server, pid: int = -1, sequence: int = 0) -> int:
    """The pid of one is good at those that lead the partitions, and one that is made up is not."""
    with Producer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        found = producer.list_topics("orders")
        at = {each.id: f"{each.host}:{each.port}" for each in found.brokers.values()}
        leaders = {index: at[each.leader] for index, each in found.topics["orders"].partitions.items()}
    assert len(set(leaders.values())) == 2
    if pid < 0:
        with RawConnection(leaders[0]) as raw:
            pid, _ = raw.init_producer_id()
    assert pid >= FIRST_BOUND_PID
    for partition, leader in leaders.items():
        with RawConnection(leader) as raw:
            assert send(raw, "orders", pid ^ 1, sequence, partition) is NOT_YOURS
            assert send(raw, "orders", pid, sequence, partition) is ErrorCode.none
    return pid
