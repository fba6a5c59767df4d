"""Batches of outputs and of journals, by the compiled loops where that is worth it."""

from collections.abc import Sequence

from oncelog.client.door import BatchEncoder
from oncelog.flow.formats import SOURCE, TIME
from oncelog.flow.messages import Outputs
from oncelog.records.codecs import CODECS


class Encoding:
    def __init__(self, compression_type: str, level: int) -> None:
        self._encoder = BatchEncoder(CODECS[compression_type], level)

    def __call__(self, outputs: Outputs, timestamp_ms: int) -> bytearray:
        headers: dict[bytes, Sequence[bytes]] = {}
        if outputs.times is not None:
            headers[TIME] = [b"%d" % time_ms for time_ms in outputs.times]
        if outputs.sources is not None:
            headers[SOURCE] = outputs.sources
        return self._encoder.encode(outputs.keys, outputs.values, headers, timestamp_ms)
