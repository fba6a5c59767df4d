"""The tables of names and rules are still what Java and Kafka say."""

import subprocess
from pathlib import Path

import pytest

from tests.peers.jars import MissingPeer, java, kafka_jars, need_or_skip
from tests.security.names import NAMES, certificate
from tests.security.test_principal_mapping import CASES


@pytest.mark.thorough  # the tables hold us to Java; this says that nobody wrote them by hand
@pytest.mark.peers
def test_java_makes_the_same_of_them(tmp_path: Path) -> None:
    try:
        classes, program = f"{kafka_jars()}/*", java()
    except MissingPeer as missing:
        need_or_skip(missing)
    asked = [(rules or "DEFAULT", name) for rules, name, _ in CASES]
    asked += [("DEFAULT", str(certificate(tmp_path, subject))) for subject in NAMES]
    order = [program, "-cp", classes, str(Path(__file__).parent / "Names.java")]
    text = "".join(f"{rules}\t{name}\n" for rules, name in asked)
    done = subprocess.run(order, input=text, capture_output=True, text=True, timeout=120, check=True)
    told = done.stdout.splitlines()
    assert told == [user for _, _, user in CASES] + list(NAMES.values())
