"""A life of a flow that writes files to a store, and that something happens to at one of its files:

    python -m tests.soak.store_life SERVERS TOPIC URL half|whole|asleep NUMBER

`half`: it is killed in the midst of the upload; `whole`: when the file stands there and nothing is committed; `asleep`:
it goes on with the upload when it gets a line. Before that it says which file it is.
"""

import os
import shutil
import signal
import sys
from itertools import count
from threading import local
from typing import Any
from unittest.mock import patch

from oncelog.runner.storing.place import FilePlace
from tests.soak.stores import flow

MORE_THAN_A_PART_BYTES = 12 << 20  # so that some of the upload has left

publish, copy = FilePlace.publish, shutil.copyfileobj


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Happening:
    """To the upload of this number. Each cell uploads in a thread of its own."""

    def __init__(self, what: str, number: int) -> None:
        self.what, self.number = what, number
        self.uploads = count(1)
        self.here = local()

    def published(self, place: FilePlace, unfinished: str, name: str) -> bool:
        self.here.name, self.here.is_due = name, False
        is_first = publish(place, unfinished, name)
        if self.here.is_due and self.what == "whole":
            die()
        elif self.here.is_due:
            print("written", flush=True)
        return is_first

    def copied(self, source: Any, sink: Any, length: int) -> None:
        name = self.here.name
        self.here.is_due = name.endswith(".parquet") and next(self.uploads) == self.number
        if self.here.is_due:
            print(name, flush=True)
        if self.here.is_due and self.what == "half":
            sink.write(bytes(MORE_THAN_A_PART_BYTES))
            sink.flush()
            die()
        elif self.here.is_due and self.what == "asleep":
            sys.stdin.readline()
        copy(source, sink, length)


def main(servers: str, topic: str, url: str, what: str, number: str) -> None:
    happens = Happening(what, int(number))

    def published(place: FilePlace, unfinished: str, name: str) -> bool:
        return happens.published(place, unfinished, name)

    with patch.object(FilePlace, "publish", published), patch("shutil.copyfileobj", happens.copied):
        flow(topic, url).run({"bootstrap.servers": servers})


if __name__ == "__main__":
    main(*sys.argv[1:])
