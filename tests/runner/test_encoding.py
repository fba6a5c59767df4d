"""What a cell's outputs are encoded by."""

from oncelog.client.door import compiled_loops
from oncelog.flow.messages import Outputs
from oncelog.runner.encoding import MANY, Encoding, load_loops


def test_loops_are_there_once_they_were_loaded_and_encode_the_same() -> None:
    outputs = Outputs([b"k"] * MANY, [b"v"] * MANY)
    before = Encoding("none", -1)(Outputs(outputs.keys[:1], outputs.values[:1]), 7)
    load_loops()
    assert compiled_loops() is not None
    assert Encoding("none", -1)(Outputs(outputs.keys[:1], outputs.values[:1]), 7) == before
    assert len(Encoding("none", -1)(outputs, 7)) > len(before)
