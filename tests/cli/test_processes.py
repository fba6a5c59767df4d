"""The commands as processes: pipes, Ctrl-C, readers that have seen enough."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from oncelog.embedded import Server
from tests.cli.running import Oncelog, ended
from tests.raw import RawConnection, batch
from tests.waiting import until

MANY = 5_000


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """Many numbered records in partition 0: more than pipes and buffers take."""
    with RawConnection(server.bootstrap_servers) as raw:
        for first in range(0, MANY, 1000):
            numbers = range(first, first + 1000)
            assert raw.produce(topic, 0, batch([b"%d " % number + b"x" * 90 for number in numbers])).error_code == 0
    return topic


def test_a_reader_that_has_seen_enough_is_no_failure(oncelog: Oncelog, filled: str) -> None:
    process = oncelog.start("consume", "-t", filled, "-p", "0", "-q")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"0 ")
    process.stdout.close()
    process.stdout = None
    said = ended(process)
    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_consumer_is_ended_by_a_signal_without_many_words(
    oncelog: Oncelog, filled: str, number: signal.Signals, code: int
) -> None:
    process = oncelog.start("consume", "-t", filled, "-o", "-1", "-q")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"%d " % (MANY - 1))
    process.send_signal(number)
    said = ended(process)
    assert (said.code, said.out, said.err) == (code, b"", "")


def test_a_member_that_is_interrupted_leaves_and_has_committed_no_more_than_it_wrote(
    oncelog: Oncelog, filled: str
) -> None:
    group = f"of-{filled}"
    process = oncelog.start("consume", "-t", filled, "-G", group, "-q")
    assert process.stdout is not None
    written = [process.stdout.readline() for _ in range(MANY // 2)]
    process.send_signal(signal.SIGINT)
    written += process.stdout.readlines()
    said = ended(process)
    assert (said.code, said.err) == (130, "")
    assert oncelog("groups describe", group, "-J").json[0]["state"] == "Empty"
    later = oncelog("consume", "-t", filled, "-G", group, "-e", "-q").lines
    whole = [line.decode() for line in written if line.endswith(b"\n")]
    numbers = {int(line.split()[0]) for line in (*whole, *later)}
    assert numbers == set(range(MANY))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_read_before_a_signal_is_stored(
    oncelog: Oncelog, topic: str, number: signal.Signals, code: int
) -> None:
    """Without it, linger would hold it back for a minute."""
    process = oncelog.start("produce", "-t", topic, "-p", "1", "-X", "linger.ms=60000")
    stdin = process.stdin
    assert stdin is not None

    def is_taken() -> bool:
        return fcntl.ioctl(stdin, termios.FIONREAD, bytes(4)) == bytes(4)

    # It reads again when it has taken in what it read before.
    for text in (b"first\nsecond\n", b"half a li"):
        stdin.write(text)
        stdin.flush()
        until(is_taken, "the pipe to be empty")
    process.send_signal(number)
    said = ended(process)
    assert (said.code, said.err) == (code, "")
    assert oncelog.consumed(topic) == ["first", "second"]


def test_a_table_that_nobody_reads_is_no_failure(oncelog: Oncelog, topic: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = oncelog.start("topics", "-t", topic, stdout=writer)
    os.close(writer)
    said = ended(process)
    assert (said.code, said.err) == (0, "")


def test_no_more_is_read_once_a_record_has_failed(oncelog: Oncelog, server: Server, topic: str) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic(f"{topic}-small", 1, {"max.message.bytes": "2000"}) == 0
    process = oncelog.start("produce", "-t", f"{topic}-small", bufsize=0)
    stdin = process.stdin
    assert stdin is not None
    stdin.write(b"x" * 5000 + b"\n")

    def has_ended() -> bool:
        """Though more comes, and the input never ends."""
        with suppress(BrokenPipeError):
            stdin.write(b"more\n")
        return process.poll() is not None

    until(has_ended, "it to end")
    assert "the first one: " in ended(process).refusal


def test_a_pipe_of_envelopes_copies_a_topic(oncelog: Oncelog, server: Server, filled: str) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic(f"{filled}-copy", 3, {})
    consume = oncelog.start("consume", "-t", filled, "-J", "-e", "-q")
    produce = oncelog.start("produce", "-t", f"{filled}-copy", "-J", stdin=consume.stdout)
    assert consume.stdout is not None
    consume.stdout.close()
    consume.stdout = None
    assert (ended(produce).code, ended(consume).code) == (0, 0)
    copied = oncelog.consumed(f"{filled}-copy", "-p", "0")
    assert copied == oncelog.consumed(filled, "-p", "0")
    assert len(copied) == MANY


def test_a_file_comes_back_as_it_went(oncelog: Oncelog, topic: str, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(b"".join(b"%d\n" % number for number in range(MANY)))
    with there.open("rb") as source:
        assert ended(oncelog.start("produce", "-t", topic, "-p", "2", stdin=source)).code == 0
    with back.open("wb") as target:
        assert ended(oncelog.start("consume", "-t", topic, "-e", "-q", stdout=target)).code == 0
    assert back.read_bytes() == there.read_bytes()


def test_a_full_disk_is_told_in_one_line(oncelog: Oncelog, filled: str) -> None:
    with open("/dev/full", "wb") as full:
        said = ended(oncelog.start("consume", "-t", filled, "-e", "-q", stdout=full))
    assert "No space left on device" in said.refusal
    assert said.code == 1


@pytest.mark.parametrize("asked", [["--version"], ["topics", "--help"]])
def test_a_full_disk_is_told_in_one_line_by_what_needs_no_server_too(asked: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "oncelog", *asked], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, b"Error: No space left on device\n")


def test_a_server_that_nobody_reaches_is_no_long_wait(oncelog: Oncelog) -> None:
    process = oncelog.start("produce", "-t", "x", "-b", "127.0.0.1:1", stdin=subprocess.DEVNULL)
    assert "start a server with `oncelog serve`" in ended(process).refusal


@pytest.mark.parametrize(("closed", "is_told"), [("<&-", True), (">&-", False), ("2>&-", True), ("<&- 2>&-", True)])
def test_commands_work_where_stdin_stdout_or_stderr_is_closed(
    oncelog: Oncelog, filled: str, closed: str, is_told: bool
) -> None:
    """A socket that gets the number of one of them would be taken for it: libuv aborts when it closes such a socket."""
    order = [sys.executable, "-m", "oncelog", "topics", "list", "-b", oncelog.servers]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *order], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (filled.encode() in done.stdout) == is_told
