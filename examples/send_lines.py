"""Sends the lines of a file to a topic, each once, wherever it is killed and started again.

    python examples/send_lines.py lines.txt --topic lines

The producer and how many lines are sent are saved together, in `lines.txt.sent`, every 10,000 lines. Lines behind the
last save are produced again by the next start, recognised in the log, compared, and not written a second time. So lines
stay as they are; new ones may be added at the end, and a last line without a line feed is not sent, as more of it may
come. Lines keep their order within each partition. One process at a time sends a file.
"""

import argparse
import fcntl
import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from oncelog.client import Producer

SAVE_EVERY = 10_000


def main() -> None:
    options = read_options()
    with open(options.file, "rb") as lines:
        try:
            fcntl.flock(lines, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends, however it does
        except BlockingIOError:
            sys.exit(f"another process sends {options.file}")
        sent = send(lines, options)
    sys.stdout.write(f"{sent} lines of {options.file} stand in {options.topic}\n")


def send(lines: BinaryIO, options: argparse.Namespace) -> int:
    progress = Path(f"{options.file}.sent")
    sent, saved = json.loads(progress.read_text()) if progress.exists() else (0, None)
    properties = {"bootstrap.servers": options.servers, "oncelog.queue.full": "block"}
    with Producer(properties, saved=saved) as producer:
        if saved is None:  # the very first start
            producer.list_topics(options.topic)  # makes the topic, where brokers allow that
            producer.pin(options.topic)
        save(progress, sent, producer)  # before the first record
        for line in islice(lines, sent, None):
            if not line.endswith(b"\n"):
                break
            producer.produce(options.topic, line.rstrip(b"\r\n"))
            sent += 1
            if sent % SAVE_EVERY == 0:
                save(progress, sent, producer)
        save(progress, sent, producer)
    return int(sent)


def save(progress: Path, sent: int, producer: Producer) -> None:
    """Both in one step: the file is replaced whole, and on the disk before more is sent. `saved()` waits until all that
    was produced is stored."""
    new = progress.with_name(f"{progress.name}.new")
    with open(new, "w") as file:
        json.dump([sent, producer.saved().to_json()], file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, progress)
    folder = os.open(progress.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
