"""librdkafka itself, asked what it takes: its own list of properties, and what it says to a wrong value."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

CLIENTS = {"producer": confluent_kafka.Producer, "consumer": confluent_kafka.Consumer, "admin": AdminClient}


@dataclass(frozen=True)
class RealProperty:
    name: str
    scope: str
    takes: str
    default: str
    alias_of: str | None
    kind: str


def real_properties(scratch: Path) -> list[RealProperty]:
    """What the library in the installed wheel prints about itself."""
    (library,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    librdkafka = ctypes.CDLL(str(library))
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    printed = scratch / "properties.md"
    file = ctypes.c_void_p(libc.fopen(str(printed).encode(), b"w"))
    librdkafka.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = [[cell.strip() for cell in line.split("|")] for line in printed.read_text().splitlines()]
    return [_property(row) for row in rows if len(row) >= 6 and row[1] in ("P", "C", "*")]


def _property(row: list[str]) -> RealProperty:
    name, scope, takes, default, *_, text = row  # a default may have bars in it
    alias_of = text.split("`")[1] if text.startswith("Alias for") else None
    return RealProperty(name, scope, takes, default, alias_of, text.rpartition("*Type: ")[2].rstrip("*"))


def real_refusal(client: str, given: Mapping[str, Any]) -> tuple[str, int | None, str] | None:
    """Kind of the exception, code and words; None where the real client takes it."""
    try:
        made = CLIENTS[client](dict(given), logger=_silent)
    except confluent_kafka.KafkaException as refusal:
        return "KafkaException", refusal.args[0].code(), refusal.args[0].str().rstrip()
    except (TypeError, ValueError) as refusal:
        return type(refusal).__name__, None, str(refusal)
    if client == "consumer":
        made.close()
    return None


class _Silent:
    def log(self, *_: object) -> None:
        """Broken connections are none of these tests' business."""


_silent = _Silent()
