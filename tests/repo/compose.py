"""The Compose file read, and what it has each broker do, for a machine without Docker."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.repo.tree import read

FILE = "deploy/compose.yml"
NAMES = re.compile(r"^(zoo|broker)\d$")


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(read(FILE))
    return found


def services(kind: str) -> dict[str, dict[str, Any]]:
    """Those of `zoo` or `broker`, by name."""
    found = compose()["services"]
    return {name: found[name] for name in sorted(found) if NAMES.match(name) and name.startswith(kind)}


@dataclass(frozen=True, slots=True)
class Here:
    """Where on this machine things are that have machines of their own in the file."""

    zookeeper: str  # HOST:PORT
    inner_ports: Mapping[str, int]  # by the broker's name
    outer_ports: Mapping[str, int]
    data: Mapping[str, str]

    def environment(self, broker: str) -> dict[str, str]:
        found: dict[str, str] = dict(services("broker")[broker]["environment"])
        for name, text in found.items():
            if name == "ONCELOG_CLUSTER":
                found[name] = re.sub(r"(?<=zk://)[^/]+", self.zookeeper, text)
            if name.endswith("LISTENERS"):
                text = re.sub(r"PLAINTEXT://\w*:\d+", f"PLAINTEXT://127.0.0.1:{self.inner_ports[broker]}", text)
                found[name] = re.sub(r"HOST://[\w.]*:\d+", f"HOST://127.0.0.1:{self.outer_ports[broker]}", text)
        return found

    def command(self, broker: str) -> list[str]:
        words: list[str] = services("broker")[broker]["command"]
        return [self.data[broker] if word == "/var/lib/oncelog" else word for word in words]
