"""A query's position as committed offsets of the group that `kafka.group.id` names: for tools that show lag.

Nothing reads them back: where a query goes on is written in its checkpoint. So a commit that fails is a line in the
log and nothing more, and nobody waits for one, but the last.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from oncelog.client import KafkaException
from oncelog.client.door import Patience, ToCommit, Warm, ask, commit_to_group, cool, error_of, warm
from oncelog.slots import AnyPlace
from oncelog.spark.source import positions

GROUP: Final = "$group"
ID: Final = "group.id"
SERVERS: Final = "bootstrap.servers"
COMMIT_S: Final = 10.0

_log: Final = logging.getLogger("oncelog.spark")


class Commits:
    """The commits of one query. Each is of the whole position; one that is the same as the last is left out."""

    def __init__(self, client: Warm, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self._last: Mapping[AnyPlace, int] = {}
        self._has_failed = False

    def begin(self, at: Mapping[AnyPlace, int]) -> None:
        """Commit, while the caller goes on."""
        if at and at != self._last:
            self._last = dict(at)
            self._client.thread.call_soon(self._spawn, dict(at))

    def _spawn(self, at: Mapping[AnyPlace, int]) -> None:
        task = self._client.thread.loop.create_task(self._commit(at))
        _running.add(task)
        task.add_done_callback(_running.discard)

    async def _commit(self, at: Mapping[AnyPlace, int]) -> None:
        try:
            await commit(self._client, self._group_id, at)
            self._has_failed = False
        except KafkaException as failure:
            if not self._has_failed:
                _log.warning("the position is not committed to group %s: %s", self._group_id, failure.error.str())
            self._has_failed = True


async def commit(client: Warm, group_id: str, at: Mapping[AnyPlace, int]) -> None:
    offsets = {partition: ToCommit(offset) for partition, offset in at.items()}
    codes = await commit_to_group(client.brokers, group_id, offsets)
    failed = {code for code in codes.values() if code}
    if failed:
        raise KafkaException(error_of(failed.pop()))


async def commit_at_last(client: Warm, group_id: str, at: Mapping[AnyPlace, int]) -> None:
    """Commit the last position. There is no next time, so it is tried for a while: a cluster's first group waits for
    its topic."""
    await ask(lambda: commit(client, group_id, at), Patience(COMMIT_S))


def commit_end(progress: Any, properties: Mapping[str, str] | None = None) -> None:
    """Commit where a query stands after its last batch: for a listener, which gets the query's last progress.

    `StreamReader` can commit a position only when it is asked for the next one, and after the last batch it is not.
    `progress` is a StreamingQueryProgress. Which group and which servers stands in what the reader reported as its
    latest offset; passwords do not, so a cluster that wants any needs them in `properties`. Failures are logged.
    """
    for source in progress.sources:
        latest = json.loads(source.latestOffset or "null") or {}
        where = latest.get(GROUP) if isinstance(latest, dict) else None
        if where is None or not source.endOffset:
            continue
        at = positions.from_json(json.loads(source.endOffset)).at
        try:
            client = warm({SERVERS: where[SERVERS]} | dict(properties or {}))
            try:
                client.thread.run(commit_at_last(client, where[ID], at))
            finally:
                cool(client)
        except KafkaException as failure:
            _log.warning("the last position is not committed to group %s: %s", where[ID], failure.error.str())


_running: set[Any] = set()
