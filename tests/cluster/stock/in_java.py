"""Java's consumer, by Kafka's own kafka-verifiable-consumer. As a producer, `oncelog chaos --client java` has it."""

import json
import subprocess
import tempfile
from typing import Any, Final

from tests.cluster.stock.doors import COMMIT_MS, IMPATIENT_MS, SESSION_MS, TOPIC, Member
from tests.peers.jars import kafka_java

TOOL: Final = "org.apache.kafka.tools.VerifiableConsumer"
CONFIG: Final = {"request.timeout.ms": SESSION_MS + IMPATIENT_MS, "auto.commit.interval.ms": COMMIT_MS}


class JavaMember(Member):
    def read(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as config:
            config.write("".join(f"{name}={value}\n" for name, value in CONFIG.items()))
            config.flush()
            self._run(config.name)

    def _run(self, config: str) -> None:
        order = kafka_java(TOOL, "--bootstrap-server", self.servers, "--topic", TOPIC, "--group-id", self.group)
        order += ["--enable-autocommit", "--reset-policy", "earliest", "--session-timeout", str(SESSION_MS)]
        order += ["--verbose", "--command-config", config]
        process = subprocess.Popen(order, stdout=subprocess.PIPE, text=True)
        with self.hearing(process, process.terminate) as said:
            for line in said:
                if line.startswith("{"):
                    self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        match said["name"]:
            case "record_data":
                self.take(said["partition"], said["offset"], said["value"].encode())
            case "partitions_assigned":
                self.assigned |= {each["partition"] for each in said["partitions"]}
            case "partitions_revoked":
                self.assigned -= {each["partition"] for each in said["partitions"]}
            case "offsets_committed" if not said["success"]:
                self.errors.append(str(said))
