"""Under Spark Connect a batch has no JVM to ask: which paths and which queries it takes, and what it says of others."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.spark.option import BadOption
from oncelog.spark.sealed.arrow_files import ArrowFiles
from oncelog.spark.sealed.local import LocalStorage
from oncelog.spark.sealed.surroundings import query_of, storage_of


def frame(*queries: str) -> Any:
    """Of Spark Connect, as far as a sealed batch looks: it has no `_jdf`."""
    active = [SimpleNamespace(id=query) for query in queries]
    return SimpleNamespace(sparkSession=SimpleNamespace(streams=SimpleNamespace(active=active)))


def test_the_only_query_of_the_session_is_the_batchs() -> None:
    assert query_of(frame("query-1")) == "query-1"


@pytest.mark.parametrize("queries", [(), ("query-1", "query-2")])
def test_a_batch_that_cannot_know_its_query_is_refused(queries: tuple[str, ...]) -> None:
    with pytest.raises(BadOption, match=rf"this session runs {len(queries)}: give each query a session of its own"):
        query_of(frame(*queries))


@pytest.mark.parametrize("path", ["/a/b c", "file:/a/b%20c", "file:///a/b%20c"])
def test_a_local_path_is_taken_by_its_name(path: str) -> None:
    storage, rows = storage_of(frame(), path)
    assert isinstance(storage, LocalStorage) and isinstance(rows, ArrowFiles)
    assert storage.folder == "/a/b c"


@pytest.mark.parametrize("path", ["hdfs://host/a", "s3a://bucket/a", "viewfs://t/a", "file://host/a"])
def test_other_file_systems_are_refused_in_words(path: str) -> None:
    with pytest.raises(BadOption, match="a sealed sink needs a local path that all machines of the cluster see"):
        storage_of(frame(), path)


def test_a_relative_path_is_refused_as_nobody_knows_the_servers_folder() -> None:
    with pytest.raises(BadOption, match="needs an absolute path, as it runs on the server"):
        storage_of(frame(), "a/b")
