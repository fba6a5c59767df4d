"""What a cell's outputs are encoded by."""

from oncelog.client.door import DECODING_LOOPS
from oncelog.client.producer.encoding import compiled_loops
from oncelog.flow.cell_context import encoded_rows
from oncelog.flow.messages import Outputs
from oncelog.records.header import CRC_FROM
from oncelog.runner.batch_encoding import Encoding, wait_for_loops

MANY = 100  # records: enough for the loops


def test_loops_are_there_once_they_were_loaded_and_encode_the_same() -> None:
    keys: list[bytes | None] = [b"k%d" % number for number in range(MANY)]
    values: list[bytes | None] = [None, b"v"] * (MANY // 2)
    outputs = Outputs(keys, values)
    wait_for_loops()
    assert compiled_loops() is not None and DECODING_LOOPS.found is not None
    rows, batch = bytes(encoded_rows(outputs, 7)), bytes(Encoding("none", -1)(outputs, 7))
    assert batch[CRC_FROM:] == rows[CRC_FROM:]  # what is before it is stamped when it is sent
