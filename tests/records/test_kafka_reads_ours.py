"""A real Kafka decompresses and reads every record of a batch before it takes it: so it says whether ours are right."""

import pytest
from kio.schema.errors import ErrorCode

from oncelog.records.build import NewRecord, build_batch
from oncelog.records.columns import encode
from oncelog.records.header import stamp
from oncelog.records.read import records_of
from oncelog.records.trim import trim
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.records.samples import CODECS, columns_of, some_records

pytestmark = pytest.mark.peers
# Long enough that every codec makes several blocks of it.
RECORDS: list[NewRecord] = some_records(60) * 3


@pytest.fixture
def server(kafka: ServerProcess) -> ServerProcess:
    return kafka


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_takes_and_gives_back_what_we_build_trim_and_encode(raw: RawConnection, codec: int) -> None:
    topic = f"codec-{codec}"
    raw.create_topic(topic)
    built = bytes(build_batch(RECORDS, codec=codec))
    [encoded] = encode(**columns_of(RECORDS), codec=codec, target_bytes=1 << 24)
    trimmed = trim(built, 100)
    stamp(trimmed, 0, 0, -1)
    sent = [built, bytes(trimmed), bytes(encoded.data)]
    for batch in sent:
        assert raw.produce(topic, 0, batch).error_code is ErrorCode.none
    stored = raw.fetch(topic, 0, 0, min_bytes=sum(map(len, sent)), max_wait_ms=20_000).records
    at = 0
    for batch in sent:
        found, expected = records_of(stored, at), records_of(batch)
        assert [record[:4] for record in found] == [record[:4] for record in expected]
        assert stored[at + 16 : at + len(batch)] == batch[16:]
        at += len(batch)
    assert at == len(stored)
