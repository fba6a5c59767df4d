"""Two questions to one address: what do you speak, and who else belongs to you?"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.connection import Connection, Endpoint
from oncelog.client.net.metadata import Metadata
from oncelog.client.net.opening import Opener
from oncelog.wire.own import LEASE_PID_KEY, RESUME_PID_KEY
from oncelog.wire.requests import RequestSchema

Versions = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Answer:
    endpoint: Endpoint
    versions: Versions
    metadata: Metadata

    @property
    def is_oncelog(self) -> bool:
        return RESUME_PID_KEY in self.versions

    @property
    def grants_leases(self) -> bool:
        """Whether it grants leases: not where pids are bound."""
        return LEASE_PID_KEY in self.versions


Outcome = Answer | KafkaError


async def ask_all(opener: Opener, endpoints: Iterable[Endpoint], timeout_s: float) -> dict[Endpoint, Outcome]:
    """All at once, so that many that are silent take no longer than one."""
    asked = list(dict.fromkeys(endpoints))
    outcomes = await asyncio.gather(*(ask(opener, endpoint, timeout_s) for endpoint in asked))
    return dict(zip(asked, outcomes, strict=True))


async def ask(opener: Opener, endpoint: Endpoint, timeout_s: float) -> Outcome:
    connection: Connection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await opener.open(endpoint)
            said = await connection.request("metadata", _about_brokers)
    except KafkaException as failure:
        return failure.error
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT, f"{endpoint}: no answer within {timeout_s:g} s", retriable=True)
    finally:
        if connection is not None:
            connection.close()
    return Answer(endpoint, dict(connection.versions), Metadata().updated(said))


def _about_brokers(spoken: RequestSchema) -> Any:
    return spoken.new(
        "MetadataRequest",
        topics=(),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
