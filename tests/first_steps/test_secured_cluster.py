"""`oncelog cluster start --secure` and `Server(brokers=3, secure=True)`: only the user that was made gets in."""

import stat
from pathlib import Path

import pytest

import oncelog
from oncelog.client import Producer
from oncelog.client.errors import KafkaException
from oncelog.clock import DAY_MS, ManualClock
from oncelog.cluster.stored_documents import change_in_folder
from oncelog.first_steps.certificates import ends_ms, names_in
from oncelog.first_steps.files import SecureFolder
from oncelog.first_steps.secured import RENEWAL_LOOK_MS
from oncelog.first_steps.secured_cluster import SecuredParent
from oncelog.security.documents import Kind
from oncelog.server.users import adding, new_credentials
from tests.cluster.commands import started


def produce(config: dict[str, str], value: bytes) -> None:
    with Producer({**config, "enable.idempotence": True}) as producer:
        producer.produce("orders", value)
        assert producer.flush(60) == 0


def test_a_secured_cluster_goes_on_when_a_broker_is_killed_and_again_on_its_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with oncelog.Server(brokers=3, secure=True, data_dir=str(tmp_path), num_partitions=3) as server:
        config = server.client_config
        nobody_else_gets_in(config)
        brokers_agree_on_a_transaction_by_secured_links(config)
        produce(config, b"before")
        server.kill(1)
        produce(config, b"after")
    with oncelog.Server(brokers=3, secure=True, data_dir=str(tmp_path)) as server:
        again = server.client_config
        assert again["sasl.password"] == config["sasl.password"]
        produce(again, b"again")
    for file in (tmp_path / "secure").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (tmp_path / "secure" / "client.properties").unlink()
    with oncelog.Server(brokers=3, secure=True, data_dir=str(tmp_path)) as server:
        produce({**config, "bootstrap.servers": server.bootstrap_servers}, b"still")
        assert f"`oncelog users remove admin --data {tmp_path}`" in caplog.text
        assert not (tmp_path / "secure" / "client.properties").exists(), "a password that is gone is not made up"


def nobody_else_gets_in(config: dict[str, str]) -> None:
    for wrong in ({"sasl.password": "wrong"}, {"security.protocol": "plaintext"}, {"sasl.username": "other"}):
        with Producer({**config, **wrong, "message.timeout.ms": 3000}) as producer:
            producer.produce("orders", b"x")
            with pytest.raises(KafkaException):
                producer.list_topics(timeout=3)


def brokers_agree_on_a_transaction_by_secured_links(config: dict[str, str]) -> None:
    """Its coordinator is one of them, and has the others write what ends it."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka import Producer as Transactional

    producer = Transactional({**config, "transactional.id": "payments"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("paid", f"{number}", partition=number % 3)
    producer.commit_transaction(60)
    consumer = Consumer({**config, "group.id": "all", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("paid", index, 0) for index in range(3)])
    found: set[bytes | None] = set()
    while len(found) < 30:
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        found.add(message.value())
    consumer.close()


def said_by_the_command(folder: Path, lines: int) -> list[str]:
    with started(folder, "cluster", "start", "--secure", "--brokers", "1") as (process, line):
        assert "1 brokers listen on 127.0.0.1:" in line
        assert process.stdout is not None
        return [process.stdout.readline() for _ in range(lines)]


def test_the_command_says_who_gets_in_and_how(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    said = said_by_the_command(folder, 4)
    assert "Only the user admin gets in" in said[0] and str(folder / "secure" / "client.properties") in said[1]
    change_in_folder(str(folder), Kind.USERS, adding("ann", new_credentials("s3cret")))
    assert "2 users get in by password. These files have that of admin" in said_by_the_command(folder, 1)[0]
    (folder / "secure" / "client.properties").unlink()
    said = said_by_the_command(folder, 2)
    assert "nothing here has its password" in said[0] and f"oncelog users remove admin --data {folder}" in said[1]


def test_its_certificate_is_renewed_while_it_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(1_800_000_000_000)
    names = frozenset({"localhost"})
    secure = SecureFolder(str(tmp_path / "secure"))
    secure.make_certificates(names, clock.now().wall_ms)
    store = secure.path / "server.pem"
    there = store.read_bytes()
    parent = SecuredParent(str(tmp_path), 1, {}, clock=clock)
    try:
        clock.advance(RENEWAL_LOOK_MS - 1)
        parent.keep_up()
        assert store.read_bytes() == there
        clock.advance(310 * DAY_MS)
        parent.keep_up()
        renewed = store.read_bytes()
        assert ends_ms(renewed) > ends_ms(there) + 300 * DAY_MS and names <= names_in(renewed)
        store.write_bytes(b"")
        clock.advance(RENEWAL_LOOK_MS)
        parent.keep_up()
    finally:
        parent.close()
    assert "the certificate cannot be looked at, or renewed" in caplog.text and "take it away" in caplog.text
