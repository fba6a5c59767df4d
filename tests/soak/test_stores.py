"""Files of a flow in a store that speaks S3: whatever happens between file and commit, each record is there once."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import AdminClient, NewTopic
from oncelog.embedded import Server
from oncelog.runner.storing.place import FilePlace
from tests.peers.jars import MissingPeer, need_or_skip
from tests.peers.s3_server import S3Server
from tests.repo.tree import ROOT
from tests.runner.flows import KEEP
from tests.soak.stores import audit, flow, names, send

BUCKET = "lake"
RECORDS = 5_000  # so many that files are left to do for each life
WITHIN_S = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        server = S3Server(tmp_path_factory.mktemp("store"))
    except MissingPeer as missing:
        need_or_skip(missing)
    with server:
        yield server


def life(scratch: Path, *words: str) -> "subprocess.Popen[str]":
    """Each on a machine of its own, as far as files are concerned that are not finished."""
    command = [sys.executable, "-m", "tests.soak.store_life", *words]
    own = os.environ | {"TMPDIR": str(scratch)}
    return subprocess.Popen(command, cwd=ROOT, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


@pytest.mark.thorough
@pytest.mark.timeout(1200)  # where the store is installed first
def test_between_a_file_and_its_commit_nothing_is_lost_and_nothing_is_there_twice(
    store: S3Server, topic: str, tmp_path: Path
) -> None:
    bucket, mark, settings = store.make_bucket(BUCKET).partition("?")
    url, dice = f"{bucket}/orders{mark}{settings}", random.Random(1)
    place = FilePlace(url)
    with Server() as server:
        servers = server.bootstrap_servers
        with AdminClient({"bootstrap.servers": servers}) as admin:
            admin.create_topics([NewTopic(topic, 2, 1, config=KEEP)])[topic].result(30)

        # Killed in the midst of its third upload: nobody sees any of that file.
        send(servers, topic, range(RECORDS), dice)
        with life(tmp_path, servers, topic, url, "half", "3") as killed:
            file = line_of(killed)
            assert killed.wait(WITHIN_S) == -signal.SIGKILL
        assert store.unfinished_uploads(BUCKET) > 0
        assert file.endswith(".parquet") and file not in names(place)

        # Killed when the file stands there, and is in no commit.
        with life(tmp_path, servers, topic, url, "whole", "2") as killed:
            file = line_of(killed)
            assert killed.wait(WITHIN_S) == -signal.SIGKILL
        assert file in names(place)

        # One that sleeps before its upload, behind its look whether the file is there; another one goes on meanwhile.
        send(servers, topic, range(RECORDS, 2 * RECORDS), dice)
        with life(tmp_path, servers, topic, url, "asleep", "2") as sleeper:
            assert sleeper.stdin is not None
            file = line_of(sleeper)
            assert file not in names(place)
            flow(topic, url).run({"bootstrap.servers": servers}, until="end")
            audit(url, 2 * RECORDS)
            assert file in names(place)
            sleeper.stdin.write("\n")
            sleeper.stdin.flush()
            assert line_of(sleeper) == "written"
            sleeper.wait(WITHIN_S)
        audit(url, 2 * RECORDS)
