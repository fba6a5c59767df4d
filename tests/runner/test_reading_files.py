"""Files of flows, read by what people read Parquet with, and written to where only fsspec reaches."""

from importlib import import_module
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from oncelog.embedded import Server
from tests.runner.test_files import filing, send

COUNT = 60  # six hours
SUM = sum(range(COUNT))


def test_duckdb_and_pandas_read_the_folder_as_a_table(own_server: Server, topic: str, tmp_path: Path) -> None:
    send(own_server.bootstrap_servers, topic, range(COUNT))
    filing(topic, tmp_path).run({"bootstrap.servers": own_server.bootstrap_servers}, until="end")
    duckdb, pandas = import_module("duckdb"), import_module("pandas")
    files = f"read_parquet('{tmp_path}/*/*.parquet', hive_partitioning=true)"
    assert duckdb.sql(f"select count(*), sum(amount), count(distinct hour) from {files}").fetchall() == [
        (COUNT, SUM, 6)
    ]
    frame = pandas.read_parquet(tmp_path)
    assert (len(frame), frame["amount"].sum(), frame["hour"].nunique()) == (COUNT, SUM, 6)


@pytest.mark.parametrize("place", ["memory://lake/{topic}", "local://{folder}/{topic}"])
def test_a_place_that_only_fsspec_knows(own_server: Server, topic: str, tmp_path: Path, place: str) -> None:
    url = place.format(folder=tmp_path, topic=topic)
    properties = {"bootstrap.servers": own_server.bootstrap_servers}
    send(own_server.bootstrap_servers, topic, range(COUNT // 2))
    filing(topic, url).run(properties, until="end")
    send(own_server.bootstrap_servers, topic, range(COUNT // 2, COUNT))
    filing(topic, url).run(properties, until="end")

    files, root = import_module("fsspec.core").url_to_fs(url)
    names = files.find(root)
    found = ds.dataset([name for name in names if name.endswith(".parquet")], filesystem=files).to_table()
    assert sorted(found["amount"].to_pylist()) == list(range(COUNT))
    assert len([name for name in names if name.endswith("/hour=2026-06-21T00/_SUCCESS")]) == 1
    assert not [name for name in names if name.rpartition("/")[2].startswith(".")]
