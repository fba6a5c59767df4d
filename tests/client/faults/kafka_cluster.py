"""Three brokers of a real Apache Kafka, each a controller as well: a leader can be killed and another takes over."""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.peers.apache import ApacheKafka

BROKERS: Final = 3
SMALL_JVM: Final = ("-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# A broker that was killed is missed after two seconds, and its partitions get another leader.
QUICK: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "3000",
    "num.recovery.threads.per.data.dir": "1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
}


class KafkaCluster:
    def __init__(self, folder: Path) -> None:
        self.brokers = [
            ApacheKafka(folder / str(node_id), settings={"node.id": str(node_id), **QUICK}, jvm=SMALL_JVM)
            for node_id in range(1, BROKERS + 1)
        ]
        voters = []
        for node_id, broker in enumerate(self.brokers, 1):
            _, at = broker.settings["controller.quorum.voters"].split("@")
            voters.append(f"{node_id}@{at}")
        for broker in self.brokers:
            broker.settings["controller.quorum.voters"] = ",".join(voters)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def broker(self, node_id: int) -> ApacheKafka:
        return self.brokers[node_id - 1]

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers:  # none is of use before two of them talk
                broker.begin()
            for broker in self.brokers:
                broker.await_first_answer()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Nothing that they hold is needed any more."""
        for broker in self.brokers:
            broker.kill()
