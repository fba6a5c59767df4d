"""franz-go, by a small program that is told what to do by lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cluster.stock.by_lines import LineMember, LineSender
from tests.peers.go_programs import go_program

SOURCES: Final = Path(__file__).parent / "franz"


def program() -> Path:
    return go_program(SOURCES)


def getting_in(config: Mapping[str, str], mechanism: str) -> dict[str, str]:
    """As the program's environment says it, of librdkafka's properties."""
    return {
        "FRANZ_AUTHORITY": config["ssl.ca.location"],
        "FRANZ_MECHANISM": mechanism,
        "FRANZ_USER": config["sasl.username"],
        "FRANZ_PASSWORD": config["sasl.password"],
    }


class FranzSender(LineSender):
    def __init__(self, servers: str, codec: str = "") -> None:
        super().__init__([str(program())], servers, codec)


class FranzMember(LineMember):
    def __init__(self, servers: str, group: str) -> None:
        super().__init__(lambda: [str(program())], servers, group)
