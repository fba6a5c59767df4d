"""The door for those that build upon the client: a name of it costs its own home alone."""

import subprocess
import sys


def test_an_offset_is_asked_for_without_numba_or_arrow() -> None:
    program = (
        "import sys; from oncelog.client.door import Patience, end_offsets, warm; "
        "print({'numba', 'pyarrow', 'numpy'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "set()"
