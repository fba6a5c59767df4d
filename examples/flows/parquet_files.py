"""Files with their offsets: a topic as Parquet, a folder for each hour, read back by whatever reads Parquet.

    python examples/flows/parquet_files.py [--servers HOST:PORT] [--spark]

Which offsets a file has is in the journal before a row is written, and in its name: who repeats the work writes the
same file. An hour's `_SUCCESS` says that nothing more comes but late records.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.dataset as ds
from demo import show

from oncelog.flow import Flow, Sent, Topic, json_of, text


@dataclass(frozen=True)
class Order:
    customer: str
    cents: int


orders = Topic("lake.orders", text, json_of(Order), partitions=2)


def filing(folder: str) -> Flow:
    flow = Flow("lake", version="1")
    flow.read(orders).files(folder, every_ms=1_000)
    return flow


flow = filing(os.environ.get("LAKE", "lake"))  # oncelog flow run parquet_files:flow

outputs = ()


def records(day: int = 0) -> list[Sent]:
    begin_ms = 1_700_000_000_000 + day * 86_400_000
    return [
        orders.sent(
            f"{day}-{number}", Order("anna" if number % 2 else "bert", number * 100), begin_ms + number * 600_000
        )
        for number in range(9)
    ]


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        show(filing(folder), records())
        hours = sorted({file.parent for file in Path(folder).glob("*/*.parquet")})
        print("complete:", *(hour.name for hour in hours if (hour / "_SUCCESS").exists()))
        table = ds.dataset(folder, partitioning="hive").to_table()
        sums = table.group_by("customer").aggregate([("cents", "sum")]).sort_by("customer")
        print(sums.to_pylist())
