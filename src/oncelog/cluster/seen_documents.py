"""Users, rights, quotas and configs of groups, as a broker sees them where the brokers agree."""

import asyncio
import logging
from collections.abc import Iterable

from oncelog.cluster.cluster_topics import ClusterTopics
from oncelog.cluster.file import UnfitFolder
from oncelog.cluster.stored_documents import change_in_tree
from oncelog.cluster.tree import Tree
from oncelog.security import documents
from oncelog.security.documents import Change, Kind
from oncelog.server.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class SeenDocuments:
    def __init__(self, tree: Tree, topics: ClusterTopics) -> None:
        self._tree = tree
        self._topics = topics
        # A broker's own changes wait for each other, so that none is tried anew for them.
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Load before anybody is served. Raises UnfitFolder: to go on without rules could let everybody in."""
        for kind in Kind:
            try:
                await self._read(kind)
            except documents.Damaged as damage:
                raise UnfitFolder(
                    f"what the brokers have agreed on cannot be read: {damage}. Restore /{kind} where they agree"
                ) from damage

    async def read(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            try:
                await self._read(kind)
            except documents.Damaged as damage:
                logger.error("/%s is passed over: %s", kind, damage)
                if kind is Kind.ACLS:  # what stood there before could allow more
                    self._topics.see_document(kind, documents.DAMAGED)

    async def _read(self, kind: Kind) -> None:
        node = await self._tree.get(f"/{kind}")
        self._topics.see_document(kind, {} if node is None else documents.decode(kind, node.value))

    async def change(self, kind: Kind, change: Change) -> None:
        """Raises KafkaError and TreeError."""
        try:
            async with self._turn:
                changed = await change_in_tree(self._tree, kind, change)
        except documents.TooMuch as refusal:
            raise KafkaError(ErrorCode.policy_violation, str(refusal)) from refusal
        except documents.Damaged as damage:
            raise KafkaError(ErrorCode.unknown_server_error, str(damage)) from damage
        self._topics.see_document(kind, changed)
