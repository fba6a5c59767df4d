"""The producer of an experiment by Kafka's Java client: Kafka's own `kafka-verifiable-producer`, and what it says
put into reports (`sender_report.py`).

    CHAOS_ORDER='{"client": "java", "servers": "127.0.0.1:9092", ...}' python -m oncelog.chaos.java_sending

The tool sends the numbers 0, 1, 2, ... and names each that was confirmed. It chooses the partitions itself, always
begins at 0, and does not tell what it has sent but what became of it.
"""

import json
import os
import re
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from oncelog.chaos.kafka_login import for_java, jvm_for_java
from oncelog.chaos.order_variable import told
from oncelog.chaos.sending import PATIENCE_S, RECONNECT, TELL_EVERY_S, Order, Teller, to_stdout
from oncelog.clock import wall_s
from oncelog.spark.java import find_java

TOOL: Final = "org.apache.kafka.tools.VerifiableProducer"
# No second compiler and a small heap: the tool shares the machine with everything else.
JVM: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
PORTION_BYTES: Final = 1 << 16
_NOT_PLAIN: Final = re.compile(r"[^!-\[\]-~]+")  # all but visible ASCII without the backslash
END_S: Final = 30.0
TERMINATED: Final = (-15, 143)  # by SIGTERM: Java ends with the code that a shell would say


class NoKafka(ValueError):
    """There are no jars of Kafka's; the text says how to name them."""


def kafka_libs(home: str) -> Path:
    """The jars below an unpacked Apache Kafka, or of a folder that has them itself."""
    for folder in (Path(home) / "libs", Path(home)):
        if any(folder.glob("kafka-tools*.jar")):
            return folder.resolve()
    named = f"there is no kafka-tools-*.jar in {home}/libs" if home else "nothing names one"
    raise NoKafka(
        f"--client java is Kafka's own kafka-verifiable-producer: set KAFKA_HOME to an Apache Kafka ({named})"
    )


def command(order: Order, environ: Mapping[str, str]) -> list[str]:
    java = find_java(environ).home / "bin" / "java"
    found = [str(java), *JVM, *jvm_for_java(order.login), "-cp", f"{order.kafka_libs}/*", TOOL]
    found += ["--bootstrap-server", order.servers, "--topic", order.topic, "--max-messages", str(order.messages)]
    found += ["--throughput", str(order.rate or -1), "--producer.config", "/dev/stdin"]
    return found


def properties(order: Order) -> str:
    """The tool itself would neither try again nor be idempotent; what is asked for here, it takes."""
    wanted = {
        "acks": "all",
        "enable.idempotence": str(order.is_idempotent).lower(),
        "linger.ms": order.linger_ms,
        "retries": 2_147_483_647,
        "delivery.timeout.ms": int(PATIENCE_S * 1000),
        **RECONNECT,
        **for_java(order.login),
    }
    return "".join(f"{name}={escaped(value)}\n" for name, value in wanted.items())


def escaped(value: object) -> str:
    """The value as Java reads it from a file of properties, which is ASCII."""
    return _NOT_PLAIN.sub(lambda found: "".join(rf"\u{unit}" for unit in _units(found[0])), str(value))


def _units(text: str) -> list[str]:
    encoded = text.encode("utf-16-be").hex()
    return [encoded[at : at + 4] for at in range(0, len(encoded), 4)]


class Lines:
    """The lines that the tool prints, out of bytes as they arrive."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> Iterator[Mapping[str, Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                yield json.loads(line)


class Relay:
    def __init__(self, teller: Teller) -> None:
        self._teller = teller

    def take(self, said: Mapping[str, Any]) -> None:
        if said["name"] == "producer_send_success":
            number = int(said["value"])
            self._teller.sent = max(self._teller.sent, number + 1)
            self._teller.confirms(number)
        elif said["name"] == "producer_send_error":
            self._teller.failed += 1
        elif said["name"] == "tool_data":
            self._teller.sent = max(self._teller.sent, int(said["sent"]))


def run(order: Order, write: Callable[[bytes], object]) -> int:
    """The tool's exit code; 0 where it was told to end."""
    teller, is_told_to_end = Teller(write), False
    relay, lines = Relay(teller), Lines()
    with subprocess.Popen(command(order, os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tool:
        assert tool.stdin is not None and tool.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already, and its exit code says why
            tool.stdin.write(properties(order).encode())
            tool.stdin.close()
        os.set_blocking(tool.stdout.fileno(), False)
        with selectors.DefaultSelector() as ready:
            ready.register(tool.stdout, selectors.EVENT_READ)
            while (data := _read(ready, tool.stdout.fileno())) is not None:
                for said in lines.take(data):
                    relay.take(said)
                teller.tell()
                if order.until_s and wall_s() > order.until_s and not is_told_to_end:
                    is_told_to_end = True
                    tool.terminate()  # it flushes, and says how many it has sent
        teller.tell(now=True)
        code = tool.wait(END_S)
    return 0 if is_told_to_end and code in TERMINATED else code


def _read(ready: selectors.BaseSelector, descriptor: int) -> bytes | None:
    """The bytes that came meanwhile, perhaps none; None at the end."""
    if not ready.select(TELL_EVERY_S):
        return b""
    return os.read(descriptor, PORTION_BYTES) or None


def main() -> int:
    return run(Order(**told()), to_stdout)


if __name__ == "__main__":
    sys.exit(main())
