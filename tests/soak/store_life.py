"""A life of a flow that writes files to a store, and that something happens to at one of its files:

    python -m tests.soak.store_life SERVERS TOPIC URL half|whole|asleep NUMBER

`half`: it is killed in the midst of the upload; `whole`: when the file stands there and nothing is committed; `asleep`:
it goes on with the upload when it gets a line. Before that it says which file it is.
"""

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any
from unittest.mock import patch

from oncelog.runner.storing.place import FilePlace
from tests.soak.stores import flow

MORE_THAN_A_PART_BYTES = 12 << 20  # so that some of the upload has left

Copy = Callable[[Any, str, str], None]
copy: Copy = FilePlace._copy


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def half(place: Any, unfinished: str, path: str) -> None:
    sink = place._files.open_output_stream(path)
    sink.write(bytes(MORE_THAN_A_PART_BYTES))
    sink.flush()
    die()


def whole(place: Any, unfinished: str, path: str) -> None:
    copy(place, unfinished, path)
    die()


def asleep(place: Any, unfinished: str, path: str) -> None:
    sys.stdin.readline()
    copy(place, unfinished, path)
    print("written", flush=True)


def main(servers: str, topic: str, url: str, what: str, number: str) -> None:
    happens: Copy = {"half": half, "whole": whole, "asleep": asleep}[what]
    files = count(1)

    def copied(place: Any, unfinished: str, path: str) -> None:
        is_due = path.endswith(".parquet") and next(files) == int(number)
        if is_due:
            print(path.removeprefix(f"{place.root}/"), flush=True)
        (happens if is_due else copy)(place, unfinished, path)

    with patch.object(FilePlace, "_copy", copied):
        flow(topic, url).run({"bootstrap.servers": servers})


if __name__ == "__main__":
    main(*sys.argv[1:])
