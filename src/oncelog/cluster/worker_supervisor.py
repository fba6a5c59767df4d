"""The work of a worker on the partitions of a folder that it shares: it opens those that are to be its own, once
nobody else has them, and lets go of the others. What is decided, `replication/sharing.py` decides."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from oncelog.cluster.documents import Held, put_topic
from oncelog.cluster.supervisor import Supervisor
from oncelog.cluster.tree import Node, Put, Remove
from oncelog.cluster.worker_topics import WorkerTopics
from oncelog.log.errors import LogError
from oncelog.log.partition import PartitionLog
from oncelog.replication.leader import Proposal, Rules
from oncelog.replication.leadership import Leadership
from oncelog.replication.sharing import changed_by_worker, deleted, is_deleted, may_open, serves
from oncelog.server.topic import Partition, Topic

LOOK_S: Final = 0.01


class WorkerSupervisor(Supervisor):
    _topics: WorkerTopics
    has_let_go: Callable[[PartitionLog], bool]  # see `Housekeeping`

    @property
    def _me(self) -> int:
        return self._cluster.node_id

    # What the tree says

    def _see(self, name: str, node: Node) -> None:
        super()._see(name, node)
        held = self._held.get(name)
        if held is not None and is_deleted(held.document.partitions):
            self._withdraw(held.topic)

    def _withdraw(self, topic: Topic) -> None:
        if self._topics.get(topic.name) is topic:
            for partition in topic.open_partitions:
                self._lead(partition, False)
            self._topics.forget(topic)
            self._gone(topic.name)

    def _forget(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self._withdraw(held.topic)
            self._topics.left(held.topic)

    def _see_partition(self, partition: Partition, state: Leadership, rules: Rules) -> None:
        if state != partition.leadership:
            partition.leadership = state
            is_led = partition.is_open and serves(state, self._me, partition.log.leader_epoch)
            self._lead(partition, is_led)
            partition.wake()

    # What is open here

    def _is_to_be_open(self, state: Leadership) -> bool:
        return may_open(state, self._me)

    def _open(self, partition: Partition, state: Leadership) -> None:
        self._topics.open_here(partition, self._clock.now())

    async def _close(self, partition: Partition) -> None:
        """Nothing is done about its files any more when this returns."""
        self._lead(partition, False)
        log = partition.log
        while log.has_staged:
            await asyncio.sleep(LOOK_S)
        if not partition.is_deleted and log.offline is None and not log.closed:
            try:
                flush = log.begin_checkpoint(self._clock.now())
                await asyncio.get_running_loop().run_in_executor(None, flush)
            except (LogError, OSError):
                pass  # who opens it next looks at what is behind the recovery point
        partition.close().abandon()
        partition.wake()
        while not self.has_let_go(log):
            await asyncio.sleep(LOOK_S)

    # What should be said there instead

    def _proposals(self, held: Held) -> dict[int, Proposal]:
        found: dict[int, Proposal] = {}
        for partition, state in zip(held.topic.partitions, held.document.partitions, strict=False):
            epoch = partition.log.leader_epoch if partition.is_open else None
            changed = changed_by_worker(state, self._me, epoch)
            if changed is not None:
                found[partition.index] = Proposal(changed, ())
        return found

    # The catalog

    async def delete(self, topic: Topic) -> None:
        """Returns when its name is free."""

        def deleting(held: Held) -> Sequence[Put | Remove]:
            return put_topic(held, held.document._replace(partitions=deleted(held.document.partitions)))

        await self._change(topic, deleting)
        await self._until(lambda: self._is_gone(topic))

    def _is_gone(self, topic: Topic) -> bool:
        held = self._held.get(topic.name)
        return held is None or held.topic.id != topic.id
