"""What a task finds when it reads back what it has written."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.records.build import build_batch
from oncelog.slots import Place
from oncelog.spark.copying import lane_resuming
from oncelog.spark.copying.cluster import Cluster
from oncelog.spark.copying.job import CopyRefused, Job
from oncelog.spark.copying.lane import Lane, Side
from oncelog.spark.copying.lane_resuming import check_written

CLUSTER = Cluster({}, {})
JOB = Job(
    "copy",
    CLUSTER,
    CLUSTER,
    Side("c1", "in", "i1"),
    Side("c2", "out", "i2"),
    source_partitions=1,
    destination_partitions=1,
    most_batch_bytes=1000,
    is_compacted=False,
    is_destination_compacted=False,
    skips_lost=False,
)


@pytest.mark.parametrize(
    ("sequence", "epoch", "words"),
    [(5, 0, "slot 0 of producer 7 is due"), (0, 1, "goes on with epoch 1")],
    ids=["a hole", "a newer epoch"],
)
def test_what_cannot_be_told_of_slots_that_were_acknowledged_ends_the_copy_in_words(
    monkeypatch: pytest.MonkeyPatch, sequence: int, epoch: int, words: str
) -> None:
    """Any other error would be a task that failed, which Spark tries four times."""
    found = build_batch([(None, b"x", (), 1)], producer_id=7, producer_epoch=epoch, base_sequence=sequence)

    async def refresh(topics: object) -> None:
        pass

    async def end_offsets(brokers: object, places: list[Place]) -> dict[Place, int]:
        return dict.fromkeys(places, 1)

    client: Any = SimpleNamespace(thread=SimpleNamespace(run=asyncio.run), brokers=SimpleNamespace(refresh=refresh))
    monkeypatch.setattr(lane_resuming, "warm", lambda properties: client)
    monkeypatch.setattr(lane_resuming, "cool", lambda client: None)
    monkeypatch.setattr(lane_resuming, "end_offsets", end_offsets)
    monkeypatch.setattr(lane_resuming, "read_batches", lambda *asked, **more: iter([(0, memoryview(found))]))
    with pytest.raises(CopyRefused, match=rf"{words}.* Nothing more is written"):
        check_written(JOB, Lane(0, 7, 0, done=0, offset=0, end_offset=0), 1)
