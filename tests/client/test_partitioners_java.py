"""The table of keys is still what the real Java producer says."""

import pytest

from tests.client.partition_table import of_java
from tests.client.test_partitioners import KEYS, TABLE
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip


@pytest.mark.thorough  # the table holds us to Java; this says that nobody wrote it by hand
@pytest.mark.peers
def test_java_sends_the_keys_where_the_table_says() -> None:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    assert of_java(KEYS, 7) == TABLE["java"]["7"]
