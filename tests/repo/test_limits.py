"""docs/limits.md says the values that stand in the code, and names settings that there are."""

import re

import pytest

from oncelog.console import connection as page
from oncelog.console.limits import LARGEST_BATCH_BYTES, MOST_STATE_BYTES
from oncelog.console.records import Budget
from oncelog.metrics import http as metrics_http
from oncelog.security import documents
from oncelog.server import access, connection, fetch_sessions, memory, tokens, topic_rules
from oncelog.server.bodies import MOST_UNFOLDED_BYTES
from oncelog.server.call import ANSWER_BYTES
from oncelog.server.groups import coordinator, store
from oncelog.server.groups.consumer.members import MOST_SUBSCRIBED, PATTERN_NAMES
from oncelog.server.groups.consumer.values import MOST_MOVED
from oncelog.server.names import MOST_ID_CHARACTERS
from oncelog.server.settings import Settings
from oncelog.server.transactions.memory import MOST_PARTITIONS
from oncelog.wire.bounds import MOST_ELEMENTS, MOST_STRING_BYTES
from oncelog.wire.frames import MOST_TAGGED_FIELDS
from oncelog.wire.hot import MOST_ENTRIES
from tests.repo.test_guarantees import rows
from tests.repo.tree import read

ROWS = rows(read("docs/limits.md"))
SETTINGS = Settings()


def mib(size_bytes: int) -> str:
    assert size_bytes % 2**20 == 0
    return f"{size_bytes >> 20} MiB"


VALUES = {
    "size of a request": mib(SETTINGS.socket_request_max_bytes),
    "size of a request other than Produce": mib(connection.OTHER_REQUEST_BYTES),
    "topics and partitions of a Produce request": f"{MOST_ENTRIES:,}",
    "elements of all arrays of any other request": f"{MOST_ELEMENTS:,}",
    "bytes of a string": f"{MOST_STRING_BYTES:,}",
    "tagged fields of a request": f"{MOST_TAGGED_FIELDS:,}",
    "size of an answer": mib(ANSWER_BYTES),
    "size of the answer to a Fetch": mib(SETTINGS.fetch_max_bytes),
    "memory for requests that have not arrived whole or are not answered": mib(SETTINGS.queued_max_request_bytes),
    "memory for answers that clients do not take": mib(memory.UNSENT_BYTES),
    "connections": f"{SETTINGS.max_connections:,}",
    "characters of a topic's name": f"{topic_rules.MAX_NAME_CHARS}",
    "partitions of a server": f"{SETTINGS.oncelog_max_partitions:,}",
    "size of a batch": f"{SETTINGS.message_max_bytes:,} bytes",
    "what a batch unfolds to": mib(MOST_UNFOLDED_BYTES),
    "leased producers of a partition": f"{SETTINGS.oncelog_producer_ring_entries:,}",
    "producers of a partition with Kafka's pids": f"{SETTINGS.oncelog_producer_kafka_entries:,}",
    "leased producers of all partitions": f"{SETTINGS.oncelog_max_producer_ring_entries:,}",
    "producers of all partitions with Kafka's pids": f"{SETTINGS.oncelog_max_producer_kafka_entries:,}",
    "characters of an id of a group, member, instance or client, and of a protocol type": f"{MOST_ID_CHARACTERS:,}",
    "groups": f"{SETTINGS.oncelog_max_groups:,}",
    "members of a group, and ids handed out": f"{SETTINGS.group_max_size:,}",
    "members of a group of KIP-848": f"{SETTINGS.group_consumer_max_size:,}",
    "names of topics that the members of a group of KIP-848 are subscribed to; what all say alike counts once, a "
    f"pattern as what it finds and as no fewer than {PATTERN_NAMES:,}": f"{MOST_SUBSCRIBED:,}",
    "fetch sessions, of all readers": (
        f"{SETTINGS.max_incremental_fetch_session_cache_slots:,}, of {fetch_sessions.MOST_PARTITIONS:,} partitions"
    ),
    "members of a group that goes to KIP-848's protocol, or back, while they work": f"{MOST_MOVED}",
    "what stands in a token before its first dot": f"{tokens.MOST_HEAD_BYTES:,} bytes",
    "good tokens that need not be looked at again, of a listener": f"{tokens.MOST_REMEMBERED:,}",
    "keys of tokens": f"{tokens.MOST_KEYS}, in {mib(tokens.MOST_BYTES)}",
    "all access rules together": f"{documents.MOST_BYTES:,} bytes",
    "users": f"{documents.MOST_BYTES:,} bytes",
    "all quotas together": f"{documents.MOST_BYTES:,} bytes",
    "decisions about rights that are remembered": f"{access.MOST_REMEMBERED:,}",
    "time that a transaction may take": f"{SETTINGS.transaction_max_timeout_ms // 60_000} min",
    "what members of all groups say of themselves and are assigned": mib(coordinator.MEMBERS_BYTES),
    "offsets of all groups with their metadata, those in transactions included": mib(store.OFFSETS_BYTES),
    "metadata of an offset": f"{SETTINGS.offset_metadata_max_bytes:,} characters",
    "transactional ids that one broker coordinates": f"{SETTINGS.oncelog_max_transactional_ids:,}",
    "characters of a transactional id": f"{MOST_ID_CHARACTERS:,}",
    "partitions of a transaction": f"{SETTINGS.oncelog_max_transaction_partitions:,}",
    "partitions of all transactions that one broker coordinates": f"{MOST_PARTITIONS:,}",
    "what one OffsetCommit stores": f"{SETTINGS.message_max_bytes:,} bytes",
    "size of a request to the [page](console.md), with its body": (
        f"{page.MOST_REQUEST_BYTES:,} bytes and {page.MOST_REQUEST_LINES} lines"
    ),
    "looks that the page makes at a time": (
        f"1, which reads up to {mib(LARGEST_BATCH_BYTES)} and unfolds up to {mib(Budget().unfolded_bytes)}"
    ),
    "connections to the page": f"{page.MOST_CONNECTIONS}",
    "time in which a connection to the page asks nothing new, or takes nothing": (
        f"{page.PATIENCE_S:.0f} to {2 * page.PATIENCE_S:.0f} s"
    ),
    "a record of a sink's topic that the page reads": mib(MOST_STATE_BYTES),
    "size of a request for [metrics](metrics.md)": f"{metrics_http.MAX_HEAD_BYTES:,} bytes",
    "scrapes at a time": f"{metrics_http.MAX_SCRAPES}",
    "connections to the metrics": f"{metrics_http.MAX_OPEN}",
    "time that a scrape may take": f"{metrics_http.SCRAPE_S:.0f} s",
    "offsets that a start reads though they no longer count": mib(SETTINGS.offsets_topic_segment_bytes),
}


@pytest.mark.parametrize("bound", VALUES)
def test_a_value_on_the_page_is_the_one_in_the_code(bound: str) -> None:
    (value,) = [cells[1] for cells in ROWS if cells[0] == bound]
    assert re.search(rf"(^|\D ){re.escape(VALUES[bound])}", value)


def test_each_named_setting_is_one() -> None:
    topics = read("docs/settings.md")
    for cells in ROWS:
        for name in re.findall(r"`([a-z.]+)`", cells[2]):
            assert f"`{name}`" in topics, name
