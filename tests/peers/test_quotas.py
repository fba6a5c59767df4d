"""Quotas as others set and feel them: Kafka's own tools, librdkafka, our admin; and Kafka's own sums."""

import subprocess
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncelog.client.admin import ANY_NAME, Admin, QuotaEntity
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.security.rates import Rates, Windows
from tests.peers.jars import MissingPeer, kafka_jars, kafka_java, need_or_skip
from tests.peers.server_process import ServerProcess
from tests.waiting import until

TOOL_SECONDS = 90
WAIT_S = 60
CONFIGS = "kafka.admin.ConfigCommand"

SUMS = """
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.common.metrics.stats.Rate;

public class Sums {
    public static void main(String[] arguments) {
        Random random = new Random(Long.parseLong(arguments[0]));
        for (int scenario = 0; scenario < 60; scenario++) {
            int samples = new int[]{11, 2, 1, 5, 100}[scenario % 5];
            int seconds = new int[]{1, 3, 1, 10, 2}[scenario % 5];
            double bound = new double[]{100, 10, 5, 33.3, 1}[scenario % 5];
            MetricConfig config = new MetricConfig().timeWindow(seconds, TimeUnit.SECONDS).samples(samples);
            Rate rate = new Rate();
            long now = 1000;
            StringBuilder line = new StringBuilder();
            for (int step = 0; step < 200; step++) {
                int kind = random.nextInt(10);
                now += kind == 0 ? random.nextInt(30000) : kind < 3 ? 0 : random.nextInt(1500 * seconds);
                long value = random.nextInt((int) (bound * seconds * 3) + 2);
                rate.record(config, value, now);
                double measured = rate.measure(config, now);
                long span = rate.windowSize(config, now);
                long wait = measured > bound ? Math.round((measured - bound) / bound * span) : 0;
                line.append(" ").append(now).append(",").append(value).append(",").append(wait);
            }
            System.out.println(samples + " " + seconds + " " + bound + line);
        }
    }
}
"""


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_waits_are_those_of_kafkas_own_classes(tmp_path: Path, seed: int) -> None:
    try:
        jars = kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    source = tmp_path / "Sums.java"
    source.write_text(SUMS)
    order = ["java", "-cp", f"{jars}/*", str(source), str(seed)]
    said = subprocess.run(order, capture_output=True, text=True, check=True, timeout=TOOL_SECONDS).stdout
    lines = said.splitlines()
    assert len(lines) == 60
    for line in lines:
        number, seconds, bound, *steps = line.split()
        rates: Rates[str] = Rates(Windows(int(number), int(seconds) * 1000), 1)
        for now, value, wait in (map(int, step.split(",")) for step in steps):
            assert rates.wait_ms("x", float(bound), value, now) == wait, (line[:40], now)


def run(server: ServerProcess, *arguments: str) -> str:
    try:
        command = kafka_java(CONFIGS, "--bootstrap-server", server.bootstrap_servers, *arguments)
    except MissingPeer as missing:
        need_or_skip(missing)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.thorough
def test_kafka_configs_sets_lists_and_removes_quotas(server: ServerProcess, topic: str) -> None:
    rate = ("--add-config", "producer_byte_rate=1048576,consumer_byte_rate=2097152")
    user, client = ("--entity-type", "users", "--entity-name", topic), ("--entity-type", "clients")
    run(server, "--alter", *user, *rate)
    run(server, "--alter", *user, *client, "--entity-default", "--add-config", "request_percentage=12.5")
    run(
        server,
        "--alter",
        "--entity-type",
        "ips",
        "--entity-name",
        "10.9.8.7",
        "--add-config",
        "connection_creation_rate=9",
    )
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        found = admin.describe_client_quotas({"user": topic}, strict=True).result(WAIT_S)
    assert list(found.values()) == [{"producer_byte_rate": 1048576.0, "consumer_byte_rate": 2097152.0}]
    assert "request_percentage=12.5" in run(server, "--describe", *user, *client, "--entity-default")
    assert "connection_creation_rate=9.0" in run(server, "--describe", "--entity-type", "ips")
    run(server, "--alter", *user, "--delete-config", "producer_byte_rate")
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        until(lambda: "producer_byte_rate" not in str(admin.describe_client_quotas().result(WAIT_S)), "it is gone")


def test_our_admin_sets_and_finds_quotas(server: ServerProcess, topic: str) -> None:
    both = QuotaEntity.of({"user": topic, "client-id": None})
    own = QuotaEntity.of({"user": topic})
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        futures = admin.alter_client_quotas({own: {"producer_byte_rate": 9.0}, both: {"request_percentage": 1.5}})
        assert [future.result(WAIT_S) for future in futures.values()] == [None, None]
        wanted = {own: {"producer_byte_rate": 9.0}, both: {"request_percentage": 1.5}}
        until(lambda: admin.describe_client_quotas({"user": topic}).result(WAIT_S) == wanted, "the change is seen")
        strict = admin.describe_client_quotas({"user": topic, "client-id": ANY_NAME}, strict=True)
        assert strict.result(WAIT_S) == {both: {"request_percentage": 1.5}}
        assert admin.describe_client_quotas({"user": topic, "client-id": "x"}).result(WAIT_S) == {}
        wrong = admin.alter_client_quotas({own: {"nope": 1.0}})[own].exception(WAIT_S)
        assert isinstance(wrong, KafkaException)
        assert wrong.error.code() == KafkaError.INVALID_REQUEST
        assert "Invalid configuration key nope" in wrong.error.str()
        admin.alter_client_quotas({own: {"producer_byte_rate": None}})[own].result(WAIT_S)
        until(lambda: own not in admin.describe_client_quotas({"user": topic}).result(WAIT_S), "it is gone")


def test_librdkafka_is_told_to_wait_and_another_client_is_not(server: ServerProcess, topic: str) -> None:
    slow, quick = f"slow-{topic}", f"quick-{topic}"
    entity = QuotaEntity.of({"client-id": slow})
    waited: dict[str, list[int]] = {slow: [], quick: []}
    is_told = threading.Event()

    def producer(client_id: str) -> Producer:
        def note(event: object) -> None:
            waited[client_id].append(event.throttle_time)  # type: ignore[attr-defined]
            is_told.set()

        properties = {"bootstrap.servers": server.bootstrap_servers, "client.id": client_id, "throttle_cb": note}
        return Producer({**properties, "linger.ms": 0, "batch.size": 20_000})

    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        admin.alter_client_quotas({entity: {"producer_byte_rate": 20_000.0}})[entity].result(WAIT_S)
        until(lambda: admin.describe_client_quotas({"client-id": slow}).result(WAIT_S), "the quota is there")
        throttled, free = producer(slow), producer(quick)
        for _ in range(30):  # 300 KB: ten seconds' worth of quota, and half as much again
            throttled.produce(topic, b"x" * 10_000)
            free.produce(topic, b"x" * 10_000)
        assert free.flush(WAIT_S) == 0
        until(lambda: throttled.poll(0.1) is None or is_told.is_set(), "it is told to wait")
        admin.alter_client_quotas({entity: {"producer_byte_rate": None}})[entity].result(WAIT_S)
        assert throttled.flush(WAIT_S) == 0
    assert max(waited[slow]) > 0
    assert max(waited[quick], default=0) == 0
