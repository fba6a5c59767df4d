"""What a broker makes of users, rights and quotas where the brokers agree, when somebody else has written there."""

import logging
from typing import cast

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster.cluster_topics import ClusterTopics
from oncelog.cluster.file import UnfitFolder
from oncelog.cluster.seen_documents import SeenDocuments
from oncelog.cluster.tree import ABSENT, Put
from oncelog.security.acls import Acls
from oncelog.security.documents import Document, Kind
from tests.cluster.tree_memory import MemoryTree


class Shown:
    def __init__(self) -> None:
        self.documents: dict[Kind, Document] = {}

    def see_document(self, kind: Kind, document: Document) -> None:
        self.documents[kind] = document


async def where(kind: Kind) -> tuple[SeenDocuments, Shown]:
    """What stands there is no JSON object."""
    session = MemoryTree().session(ManualClock())
    await session.begin_session()
    await session.change(Put(f"/{kind}", b"[]", ABSENT))
    shown = Shown()
    return SeenDocuments(session, cast(ClusterTopics, shown)), shown


@pytest.mark.parametrize("kind", Kind)
async def test_nobody_is_served_where_it_cannot_be_read_at_the_start(kind: Kind) -> None:
    seen, _ = await where(kind)
    with pytest.raises(UnfitFolder, match=f"/{kind}"):
        await seen.load()


@pytest.mark.parametrize("kind", Kind)
async def test_what_cannot_be_read_later_leaves_what_was_there_but_no_rights(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    """The rules that were there before could allow more than those that are there now."""
    seen, shown = await where(kind)
    with caplog.at_level(logging.ERROR):
        await seen.read([kind])
    assert f"/{kind}" in caplog.text
    assert (kind in shown.documents) is (kind is Kind.ACLS)
    if kind is Kind.ACLS:
        acls = Acls()
        acls.see(shown.documents[kind].keys())
        assert acls.is_closed
