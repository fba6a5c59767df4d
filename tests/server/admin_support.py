"""Admin requests as they come off the wire, against topics in a temporary folder and no sockets."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

from oncelog.clock import ManualClock
from oncelog.cluster import FileCluster
from oncelog.log.disk import RealDisk
from oncelog.log.slices import Slice
from oncelog.server.access import ANONYMOUS
from oncelog.server.api import Api, Handler, apis
from oncelog.server.broker import Broker
from oncelog.server.call import Call, Encoded
from oncelog.server.errors import KafkaError
from oncelog.server.settings_reading import read_settings
from oncelog.server.topics import Topic
from oncelog.wire.frames import SIZE_BYTES
from oncelog.wire.messages import schema
from tests.raw.entities import encode_request, make, message

CLOCK = ManualClock()
ADMIN_KEYS = (19, 20, 29, 30, 31, 32, 33, 35, 37, 43, 44, 46)
EVERY_VERSION = [
    (apis()[key].name, version)
    for key in ADMIN_KEYS
    for version in range(apis()[key].versions[0], apis()[key].versions[1] + 1)
]


def versions(name: str) -> range:
    api = api_named(name)
    return range(api.versions[0], api.versions[1] + 1)


def api_named(name: str) -> Api:
    return next(api for api in apis().values() if api.name == name)


class Admin:
    def __init__(self, folder: Path, *given: str) -> None:
        self.settings = settings = read_settings([f"log.dir={folder}", *given])
        disk = RealDisk()
        cluster = FileCluster(
            disk, str(folder), CLOCK, node_id=settings.node_id, lease_lifetime_ms=settings.oncelog_lease_lifetime_ms
        )
        self.broker = Broker(settings, cluster, clock=CLOCK, disk=disk)
        self.broker.listens({"PLAINTEXT": 9092})
        self.topics = self.broker.topics
        self.principal = ANONYMOUS

    def ask(self, name: str, version: int, **values: Any) -> Any:
        """Request and answer both go through bytes: kio's writer and our reader, our writer and kio's reader."""
        kind = message(name, version)
        frame = encode_request(kind, make(kind.request, values), correlation_id=7)
        served = schema(name, version)
        _, at = served.read_header(frame, 0)
        request, size_bytes = served.read(frame, at)
        assert at + size_bytes == len(frame), "bytes behind the request"
        handle = api_named(name).handle
        assert handle is not None
        try:
            answer = asyncio.run(_answered(handle, request, self.call(name, version)))
        except KafkaError as refusal:  # as a connection does
            answer = served.refusal(refusal.code, refusal.message)
        if isinstance(answer, Encoded):
            encoded = b"".join(bytes(each) for each in answer.buffers if not isinstance(each, Slice))[SIZE_BYTES:]
        else:
            encoded = served.encode(answer, 7)
        header, at = kind.read_header(encoded, 0)
        read, size_bytes = kind.read_response(encoded, at)
        assert (header.correlation_id, at + size_bytes) == (7, len(encoded)), "bytes behind the answer"
        return read

    def call(self, name: str, version: int) -> Call:
        rights = self.broker.access.rights(self.principal, "127.0.0.1")
        return Call(
            self.broker,
            name,
            version,
            "test",
            "127.0.0.1",
            "PLAINTEXT",
            CLOCK.now(),
            correlation_id=7,
            principal=self.principal,
            rights=rights,
        )

    def new_topic(self, name: str = "orders", partitions: int = 1, **configs: str) -> Topic:
        own: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        return self.topics.create(name, partitions, own, CLOCK.now())


async def _answered(handle: Handler, request: Any, call: Call) -> Any:
    answer = handle(request, call)
    return await answer if inspect.isawaitable(answer) else answer
