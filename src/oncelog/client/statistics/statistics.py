"""The times of statistics, and the part that every client has: its name, its brokers, their sums."""

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from oncelog.clock import monotonic_s, wall_s

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

_numbers: Final = count(1)

# Of a producer or a consumer: fields of its own, and "topics", each with its "partitions".
Fields = Callable[[], dict[str, Any]]


class Statistics:
    """Made on the loop that it runs on; `tell` is given one JSON text every `interval_ms`."""

    def __init__(
        self, kind: str, brokers: "Brokers", fields: Fields, tell: Callable[[str], object], interval_ms: int
    ) -> None:
        self._kind = kind
        self._name = f"oncelog#{kind}-{next(_numbers)}"
        self._brokers = brokers
        self._fields = fields
        self._tell = tell
        self._interval_s = interval_ms / 1000
        self._began_s = monotonic_s()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._now)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _now(self) -> None:
        self.start()
        self._tell(self.text())

    def text(self) -> str:
        now_s = monotonic_s()
        own = self._fields()
        brokers = self._brokers.statistics()
        _share_out(own["topics"], brokers)
        told = {
            "name": self._name,
            "client_id": self._brokers.settings.client_id,
            "type": self._kind,
            "ts": int(now_s * 1_000_000),
            "time": int(wall_s()),
            "age": int((now_s - self._began_s) * 1_000_000),
            "metadata_cache_cnt": len(self._brokers.metadata.topics),
            "brokers": {each["name"]: each for each in brokers},
            **own,
            **_sums(brokers, own["topics"]),
        }
        return json.dumps(told, separators=(",", ":"))


def _share_out(topics: dict[str, Any], brokers: list[dict[str, Any]]) -> None:
    """Tell each broker which of the partitions it leads."""
    by_node = {each["nodeid"]: each["toppars"] for each in brokers}
    for name, topic in topics.items():
        for index, partition in topic["partitions"].items():
            led = by_node.get(partition["leader"])
            if led is not None:
                led[f"{name}-{index}"] = {"topic": name, "partition": int(index)}


def _sums(brokers: list[dict[str, Any]], topics: dict[str, Any]) -> dict[str, int]:
    partitions = [each for topic in topics.values() for each in topic["partitions"].values()]
    return {
        "tx": sum(each["tx"] for each in brokers),
        "tx_bytes": sum(each["txbytes"] for each in brokers),
        "rx": sum(each["rx"] for each in brokers),
        "rx_bytes": sum(each["rxbytes"] for each in brokers),
        "txmsgs": sum(each.get("txmsgs", 0) for each in partitions),
        "txmsg_bytes": sum(each.get("txbytes", 0) for each in partitions),
        "rxmsgs": sum(each.get("rxmsgs", 0) for each in partitions),
        "rxmsg_bytes": sum(each.get("rxbytes", 0) for each in partitions),
    }
