"""Kafka Streams with `group.protocol=streams` (KIP-1071). That protocol is not served, and it says so."""

import subprocess
from pathlib import Path
from threading import Timer

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from tests.peers.jars import MissingPeer, java, need_or_skip, streams_jars

COUNTS = Path(__file__).parent / "streams" / "ExactlyOnce.java"
PATIENCE_S = 120


@pytest.mark.thorough
def test_kafka_streams_says_that_its_own_protocol_is_not_served(tmp_path: Path) -> None:
    try:
        folder = streams_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with oncelog.Server() as server:
        servers = server.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic("in"), NewTopic("out")]).values():
            made.result()
        words = [servers, "app", str(tmp_path), "in", "out", "at_least_once", "streams"]
        command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/*", str(COUNTS), *words]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as app:
            give_up = Timer(PATIENCE_S, app.kill)
            give_up.start()
            try:
                assert app.stderr is not None
                said = next((line for line in app.stderr if "UnsupportedVersionException" in line), "nothing")
            finally:
                give_up.cancel()
                app.kill()
    assert "The cluster does not support the STREAMS group protocol" in said
