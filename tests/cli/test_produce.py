"""`oncelog produce`: what becomes of lines, files and envelopes."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.parts.lines import Fixed, Record, gathered, of_envelopes
from oncelog.cli.parts.records import envelopes
from oncelog.client.consumer.message import Message, Source
from oncelog.embedded import Server
from tests.cli.running import Oncelog
from tests.raw import RawConnection, Rec, batch

SHOWN = ("-Z", "-f", r"%p %k=%s %h\n")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("options", "stdin", "stored"),
    [
        ([], "a\nb\n\nc", "NULL=a NULL=b NULL=c"),
        (["-k", "k"], "a\nb\n", "k=a k=b"),
        (["-K", ":"], "k:a\nb\n:c\nk:\n", "k=a NULL=b =c k="),
        (["-K", ":", "-k", "all"], "k:a\nb\n", "k=a all=b"),
        (["-K", ":", "-Z"], "k:a\n:c\nk:\n\n", "k=a NULL=c k=NULL NULL=NULL"),
        (["-D", ";"], "a;b\n;c", "NULL=a NULL=b\n NULL=c"),
        (["-D", "--"], "a--b-c--", "NULL=a NULL=b-c"),
        (["-c", "2"], "a\nb\nc\n", "NULL=a NULL=b"),
        (["-c", "2", "-k", "k"], "a\nb\nc\n", "k=a k=b"),
        (["-z", "zstd"], "a\n", "NULL=a"),
    ],
)
def test_what_stands_between_delimiters_is_a_record(
    oncelog: Oncelog, topic: str, options: list[str], stdin: str, stored: str
) -> None:
    oncelog("produce", "-t", topic, "-p", "1", *options, stdin=stdin.encode())
    said = oncelog("consume", "-t", topic, "-e", "-q", "-Z", "-f", "%k=%s ").out.decode()
    assert said.strip() == stored


def test_headers_are_on_every_record(oncelog: Oncelog, topic: str) -> None:
    oncelog("produce", "-t", topic, "-p", "2", "-H", "a=1", "-H", "b=", "-H", "c", stdin=b"x\ny\n")
    assert oncelog.consumed(topic, *SHOWN) == ["2 NULL=x a=1,b=,c=NULL", "2 NULL=y a=1,b=,c=NULL"]


@pytest.mark.usefixtures("way")
def test_a_key_chooses_the_partition_as_in_librdkafka(oncelog: Oncelog, topic: str) -> None:
    from zlib import crc32

    oncelog("produce", "-t", topic, "-K", ":", stdin=b"".join(b"k%d:v\n" % number for number in range(20)))
    for line in oncelog.consumed(topic, "-f", r"%p %k\n"):
        partition, key = line.split()
        assert int(partition) == crc32(key.encode()) % 3


@pytest.mark.usefixtures("way")
def test_a_file_is_a_record_or_with_the_l_its_lines_are(oncelog: Oncelog, topic: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\nb\n")
    second.write_bytes(b"c")
    oncelog("produce", "-t", topic, "-p", "0", str(first), str(second))
    assert oncelog("consume", "-t", topic, "-e", "-q", "-p", "0", "-D", "|").out == b"a\nb\n|c|"
    oncelog("produce", "-t", topic, "-p", "1", "-l", str(first), "-", str(second), stdin=b"between\n")
    assert oncelog.consumed(topic, "-p", "1") == ["a", "b", "between", "c"]


def test_kcats_letters_stand_anywhere_in_front_of_the_options(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"-t {topic}", "-p", "0", "-P", stdin=b"a\n")
    assert oncelog("-C", "-t", topic, "-e", "-q").lines == ["a"]
    assert oncelog("-e -q", "-G", f"of-{topic}", topic).lines == ["a"]


def test_envelopes_bring_everything_to_another_topic(oncelog: Oncelog, topic: str, server: Server) -> None:
    records: list[Rec | bytes | None] = [
        Rec(b"v", b"k", (("h", b"1"), ("h", None), ("e", b""), ("b", b"\xff"))),
        Rec(None, None, timestamp_delta_ms=5),
        Rec(b"", b""),
        Rec(b'\xff\xfe\xc3\xa9"\n\xed\xb2\x80', b"\x00"),
    ]
    with RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic(f"{topic}-copy", 3, {})
        for partition in (0, 2):
            assert raw.produce(topic, partition, batch(records, timestamp_ms=1_700_000_000_000)).error_code == 0
    there = oncelog("consume", "-t", topic, "-e", "-q", "-J").out
    oncelog("produce", "-t", f"{topic}-copy", "-J", stdin=there)
    copied = oncelog("consume", "-t", f"{topic}-copy", "-e", "-q", "-J").out
    assert sorted(copied.replace(b"-copy", b"").splitlines()) == sorted(there.splitlines())


def test_envelopes_name_their_topic_where_the_command_does_not(oncelog: Oncelog, topic: str) -> None:
    lines = [json.dumps({"topic": topic, "partition": 1, "payload": text}) for text in ("a", "b")]
    oncelog("produce", "-J", stdin="\n".join(lines).encode())
    assert oncelog.consumed(topic, "-Z", "-f", r"%p %k=%s\n") == ["1 NULL=a", "1 NULL=b"]


cells = st.none() | st.binary(max_size=20)
names = st.text(max_size=5)


@given(cells, cells, st.lists(st.tuples(names, cells), max_size=3), st.integers(0, 2**52), st.integers(0, 99))
def test_an_envelope_is_read_back_as_what_it_was_made_of(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], time_ms: int, partition: int
) -> None:
    pairs = [(name.encode("utf-8", "replace"), cell) for name, cell in headers]
    message = Message(value, key, 7, time_ms, pairs, Source("t", partition))
    line = envelopes(b"\n", {})([message])
    (record,) = of_envelopes(line.split(b"\n"), Fixed(), "stdin", 1)
    assert record == Record(value, key, pairs or None, time_ms, partition, "t")


# --- what cannot be done


@pytest.mark.parametrize(
    "behind",
    [
        '{"payload"\n',
        '{"payload":"a","partition":7}\n',
        '{"payload":"a","ts":9007199254740992}\n',
    ],
)
def test_what_stands_before_a_line_that_is_refused_is_stored(oncelog: Oncelog, topic: str, behind: str) -> None:
    """Whoever mends that line goes on with it."""
    line = f'{{"topic":"{topic}","payload":"a"}}\n'
    said = oncelog.run("produce", "-J", "-X", "linger.ms=60000", stdin=(line * 3 + behind + line).encode())
    assert said.code == 1 and said.refusal
    assert oncelog.consumed(topic) == ["a"] * 3


def test_what_is_refused_before_a_line_that_is_no_json_is_told_too(oncelog: Oncelog, topic: str) -> None:
    with RawConnection(int(oncelog.servers.rpartition(":")[2])) as raw:
        assert raw.create_topic(f"{topic}-small", 1, {"max.message.bytes": "100"}) == 0
    lines = f'{{"topic":"{topic}-small","payload":"{"x" * 500}"}}\n{{"payload"\n'
    said = oncelog.run("produce", "-J", "-X", "linger.ms=60000", stdin=lines.encode())
    assert said.code == 1 and "1 records failed" in said.err and "line 2: this is no JSON" in said.err


def test_what_stands_before_a_file_that_cannot_be_read_is_stored(
    oncelog: Oncelog, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a")
    second.write_bytes(b"b")
    read = Path.read_bytes

    def refuse_second(self: Path) -> bytes:
        if self == second:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", refuse_second)
    said = oncelog.run("produce", "-t", topic, "-X", "linger.ms=60000", str(first), str(second))
    assert (said.code, said.refusal) == (1, f"{second}: Permission denied")
    assert oncelog.consumed(topic) == ["a"]


@pytest.mark.parametrize(
    ("options", "stdin", "code", "words"),
    [
        ([], "a", 2, "no topic is named: -t TOPIC"),
        (["-t", "{topic}", "-D", ""], "a", 2, "-D is empty"),
        (["-t", "{topic}", "-K", ""], "a", 2, "-K is empty"),
        (["-t", "{topic}", "-H", "=x"], "a", 2, "-H =x: expected NAME=VALUE"),
        (["-t", "{topic}", "-X", "acks=1"], "a", 2, "`acks` must be set to `all`"),
        (["-t", "{topic}", "-X", "linger.mss=1"], "a", 2, 'the nearest known one is "linger.ms"'),
        (["-t", "{topic}x"], "a", 1, "there is no topic {topic}x; the nearest known one is {topic}"),
        (["-t", "a b"], "a", 1, "there is no topic a b"),
        (["-t", "{topic}", "-p", "3"], "a", 1, "topic {topic} has the partitions 0 to 2, not 3"),
        (["-t", "{topic}", "-b", "127.0.0.1:1"], "a", 1, "start a server with `oncelog serve`"),
        (["-t", "{topic}", "-X", "message.max.bytes=1000"], "x" * 2000, 1, "a record of more than 1,000 bytes: -D"),
        (["-t", "{topic}", "-J"], '{"payload":"a"}\n{"payload"\n', 1, "stdin line 2: "),
        (["-t", "{topic}", "-J"], "hello\n", 1, "stdin line 1: this is no JSON; expected an object as"),
        (["-t", "{topic}", "-J"], "[]\n", 1, "stdin line 1: no object with a payload or a key"),
        (["-t", "{topic}", "-J"], '{"payload":1}\n', 1, "payload is neither a text nor null"),
        (["-t", "{topic}", "-J"], '{"payload":"a","headers":["x"]}\n', 1, "no list of names and values in turn"),
        (["-t", "{topic}", "-J"], '{"payload":"a","partition":7}\n', 1, "-p -1 lets keys choose instead"),
        (["-t", "{topic}", "-J"], "[" * 100_000, 1, "stdin line 1: "),
        (["-t", "{topic}", "-J"], '{"payload":"a","ts":9007199254740992}\n', 1, "too far in the future"),
        (["-t", "{topic}", "-J"], '{"payload":"\\ud800"}\n', 1, "stdin line 1: "),
        (["-J"], '{"payload":"a"}\n', 1, "a record names no topic: -t TOPIC"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    oncelog: Oncelog, topic: str, options: list[str], stdin: str, code: int, words: str
) -> None:
    said = oncelog.run("produce", *(each.replace("{topic}", topic) for each in options), stdin=stdin.encode())
    assert words.replace("{topic}", topic) in said.refusal
    assert said.code == code


def test_a_record_that_the_server_refuses_is_told(oncelog: Oncelog, server: Server, topic: str) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic(f"{topic}-small", 1, {"max.message.bytes": "2000"}) == 0
    said = oncelog.run("produce", "-t", f"{topic}-small", stdin=b"x" * 5000 + b"\n")
    assert f"1 records failed, the first one: {topic}-small [0]: Broker: Message size too large" in said.refusal


def test_a_partition_is_chosen_anew_where_the_command_says_so(oncelog: Oncelog, topic: str) -> None:
    oncelog("produce", "-t", topic, "-J", "-p", "-1", stdin=b'{"payload":"a","key":"k","partition":7}\n')
    assert oncelog.consumed(topic) == ["a"]


@pytest.mark.usefixtures("way")
def test_what_stands_before_a_record_that_is_too_large_is_sent(oncelog: Oncelog, topic: str) -> None:
    lines = b"a\nb\n" + b"x" * 999_999 + b"\nc\n"
    said = oncelog.run("produce", "-t", topic, "-p", "0", "-X", "message.max.bytes=1000000", stdin=lines)
    assert "too large" in said.refusal
    assert oncelog.consumed(topic) == ["a", "b"]


@pytest.mark.usefixtures("way")
def test_a_refused_record_is_told_once_with_how_many_failed(oncelog: Oncelog, server: Server, topic: str) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic(f"{topic}-small", 1, {"max.message.bytes": "100"}) == 0
    said = oncelog.run("produce", "-t", f"{topic}-small", stdin=b"x" * 200 + b"\n")
    assert said.refusal.startswith("1 records failed, the first one: ")
    assert "too large" in said.refusal.lower()


def test_gathering_waits_for_nobody() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as stream:
        os.write(writer, b"more")
        assert list(gathered(iter([[b"a"], [b"b"]]), stream)) == [[b"a", b"b"]], "more is there already"
        assert stream.read(4) == b"more"
        assert list(gathered(iter([[b"a"], [b"b"]]), stream)) == [[b"a"], [b"b"]], "nothing more is there yet"
        os.close(writer)


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("topics --bootstrap-server=h:1", "-b HOST:PORT"),
        ("consume --brokers h:1", "-b HOST:PORT"),
        ("produce --topic t", "-t TOPIC"),
        ("serve --port 1", "--listen HOST:PORT"),
    ],
)
def test_an_option_by_its_name_in_another_tool_is_told_by_its_own(command: str, meant: str) -> None:
    ended = Oncelog("").run(command)
    assert ended.code == 2 and "No such option '--" in ended.refusal and f"': it is {meant} (" in ended.refusal


def test_a_topic_without_its_option_is_no_missing_file() -> None:
    assert "no topic is named: -t fruit?" in Oncelog("").run("produce", "fruit").refusal
    assert "File 'fruit' does not exist" in Oncelog("").run("produce", "fruit", "-t", "x").refusal
