"""A store that speaks S3: moto's server, in a process of its own, with the packages of requirements/stores.txt."""

import re
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.request import Request, urlopen

from bench.flow_contestant import environment
from oncelog.chaos.life import Life, free_ports, listens

ANSWERS_S = 30


class S3Server(Life):
    """It keeps all in memory. Where it is installed first, that takes a while."""

    def __init__(self, folder: Path) -> None:
        super().__init__("moto", folder / "moto.log")
        (self.port,) = free_ports(1)
        self._python = environment("stores")

    def __enter__(self) -> Self:
        self.launch([str(self._python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)])
        self.await_ready(lambda: listens(self.port))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def make_bucket(self, name: str) -> str:
        """Its URL, as pyarrow takes it."""
        self._ask("PUT", name)
        return f"s3://key:secret@{name}?scheme=http&endpoint_override=127.0.0.1:{self.port}&region=us-east-1"

    def unfinished_uploads(self, bucket: str) -> int:
        return len(re.findall("<UploadId>", self._ask("GET", f"{bucket}?uploads")))

    def _ask(self, method: str, path: str) -> str:
        with urlopen(Request(f"http://127.0.0.1:{self.port}/{path}", method=method), timeout=ANSWERS_S) as answer:
            return str(answer.read(), "utf-8")
