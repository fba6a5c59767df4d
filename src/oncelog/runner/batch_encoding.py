"""Batches of outputs and of journals, by the compiled loops where that is worth it."""

from oncelog.client.door import DECODING_LOOPS, BatchEncoder, fetch_compiled_loops
from oncelog.flow.messages import Outputs
from oncelog.records.codecs import CODECS


def wait_for_loops() -> None:
    """Wait for the loops before they are needed: it takes a second, which the first large batch would wait for."""
    fetch_compiled_loops(wait=True)
    DECODING_LOOPS.fetch(wait=True)


class Encoding:
    def __init__(self, compression_type: str, level: int) -> None:
        self._encoder = BatchEncoder(CODECS[compression_type], level)

    def __call__(self, outputs: Outputs, timestamp_ms: int) -> bytearray:
        return self._encoder.encode(outputs.keys, outputs.values, outputs.headers, timestamp_ms)
