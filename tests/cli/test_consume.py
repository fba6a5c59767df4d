"""`oncelog consume`: which records, and in which form. What is expected of forms is what kcat 1.7.1 printed.

But for three things that it cannot: `-Z` tells null from empty, `-D` may be a zero byte, and an envelope is JSON also
where the record is no text.
"""

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.parts.consume_loop import ConsumeLoop, Limits
from oncelog.cli.parts.records import values
from oncelog.embedded import Server
from tests.cli.running import Oncelog
from tests.raw import RawConnection, Rec, batch

TIME_MS = 1_700_000_000_000


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """Five records in partition 0, a second apart, and one in partition 2."""
    records: list[Rec | bytes | None] = [
        Rec(b"v%d" % number, b"k%d" % number, timestamp_delta_ms=1000 * number) for number in range(5)
    ]
    with RawConnection(server.bootstrap_servers) as raw:
        assert raw.produce(topic, 0, batch(records, timestamp_ms=TIME_MS)).error_code == 0
        assert raw.produce(topic, 2, batch([b"other"], timestamp_ms=TIME_MS)).error_code == 0
    return topic


@pytest.fixture
def odd(server: Server, topic: str) -> str:
    """Nulls, emptiness, headers, and bytes that are no text."""
    records: list[Rec | bytes | None] = [
        Rec(b"v", b"k", (("h", b"1"), ("h", None), ("e", b""))),
        Rec(None, None),
        Rec(b"", b""),
        Rec(b'\xff\xfe\xc3\xa9"\n', b"\x00"),
    ]
    with RawConnection(server.bootstrap_servers) as raw:
        assert raw.produce(topic, 1, batch(records, timestamp_ms=TIME_MS)).error_code == 0
    return topic


# --- which records


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([], "v0 v1 v2 v3 v4"),
        (["-o", "beginning"], "v0 v1 v2 v3 v4"),
        (["-o", "end"], ""),
        (["-o", "3"], "v3 v4"),
        (["-o", "5"], ""),
        (["-o", "-2"], "v3 v4"),
        (["-o", "-99"], "v0 v1 v2 v3 v4"),
        (["-o", f"s@{TIME_MS + 1500}"], "v2 v3 v4"),
        (["-o", f"s@{TIME_MS + 9000}"], ""),
        (["-o", f"e@{TIME_MS + 2000}"], "v0 v1"),
        (["-o", f"e@{TIME_MS + 9000}"], "v0 v1 v2 v3 v4"),
        (["-o", f"s@{TIME_MS + 1000}", "-o", f"e@{TIME_MS + 3000}"], "v1 v2"),
        (["-c", "2"], "v0 v1"),
        (["-u", "-c", "3"], "v0 v1 v2"),
    ],
)
def test_it_reads_from_where_it_is_told(oncelog: Oncelog, filled: str, where: list[str], expected: str) -> None:
    assert oncelog.consumed(filled, "-p", "0", *where) == expected.split()


@pytest.mark.usefixtures("way")
def test_without_the_e_it_ends_at_the_time_where_it_is_to_stop(oncelog: Oncelog, filled: str) -> None:
    assert oncelog("consume", "-t", filled, "-q", "-o", f"e@{TIME_MS + 1000}").lines in (
        ["v0", "other"],
        ["other", "v0"],
    )


def test_the_end_of_each_partition_is_told_unless_it_is_to_be_quiet(oncelog: Oncelog, filled: str) -> None:
    told = sorted(oncelog("consume", "-t", filled, "-e").err.splitlines())
    assert told == [f"% Reached end of topic {filled} [{index}] at offset {end}" for index, end in enumerate((5, 0, 1))]
    assert oncelog("consume", "-t", filled, "-e", "-q").err == ""


def test_several_topics_are_read_at_once(oncelog: Oncelog, filled: str, server: Server) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic(f"{filled}-b", 1, {})
        raw.produce(f"{filled}-b", 0, batch([b"b"]))
    assert sorted(oncelog("consume", "-t", filled, "-e", "-q", f"{filled}-b").lines)[:2] == ["b", "other"]


# --- in which form


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ([], b'v\n\n\n\xff\xfe\xc3\xa9"\n\n'),
        (["-Z"], b'v\nNULL\n\n\xff\xfe\xc3\xa9"\n\n'),
        (["-D", r"\x00"], b'v\0\0\0\xff\xfe\xc3\xa9"\n\0'),
        (["-D", ""], b'v\xff\xfe\xc3\xa9"\n'),
        (["-K", r"\t"], b'k\tv\n\t\n\t\n\0\t\xff\xfe\xc3\xa9"\n\n'),
        (["-f", r"%p %o %K %S %T %%\n"], b"".join(
            b"1 %d %d %d 1700000000000 %%\n" % (offset, key, value)
            for offset, key, value in ((0, 1, 1), (1, -1, -1), (2, 0, 0), (3, 1, 6))
        )),
        (["-f", r"%h;\x41\r"], b"h=1,h=NULL,e=;A\r;A\r;A\r;A\r"),
        (["-f", "%R"], bytes.fromhex("00000001 ffffffff 00000000 00000006")),
        (["-Z", "-f", r"%k=%s\n", "-c", "2"], b"k=v\nNULL=NULL\n"),
    ],
)  # fmt: skip
def test_it_prints_what_kcat_prints(oncelog: Oncelog, odd: str, options: list[str], printed: bytes) -> None:
    assert oncelog("consume", "-t", odd, "-p", "1", "-e", "-q", *options).out == printed


def test_the_envelope_is_kcats(oncelog: Oncelog, odd: str) -> None:
    said = oncelog("consume", "-t", odd, "-p", "1", "-e", "-q", "-J").lines
    head = f'{{"topic":"{odd}","partition":1,"offset":'
    time = f'"tstype":"create","ts":{TIME_MS},"broker":1,'
    assert said[0] == f'{head}0,{time}"headers":["h","1","h",null,"e",""],"key":"k","payload":"v"}}'
    assert said[1] == f'{head}1,{time}"key":null,"payload":null}}'
    assert said[2] == f'{head}2,{time}"key":"","payload":""}}'
    assert json.loads(said[3])["payload"].encode("utf-8", "surrogateescape") == b'\xff\xfe\xc3\xa9"\n'


# --- as a member of a group


@pytest.mark.usefixtures("way")
def test_a_group_goes_on_behind_what_was_written(oncelog: Oncelog, filled: str) -> None:
    first = oncelog("consume", "-G", "g-on", filled, "-c", "4", "-q").lines
    second = oncelog("consume", "-G", "g-on", "-t", filled, "-e", "-q").lines
    assert sorted(first + second) == ["other", "v0", "v1", "v2", "v3", "v4"]
    assert oncelog("consume", "-G", "g-on", "-t", filled, "-e", "-q").lines == []


def test_a_group_may_speak_kip_848(oncelog: Oncelog, filled: str) -> None:
    told = ("consume", "-G", f"told-{filled}", "-X", "group.protocol=consumer", "-t", filled, "-q")
    assert sorted(oncelog(*told, "-c", "6").lines) == ["other", "v0", "v1", "v2", "v3", "v4"]
    refusal = oncelog.run(*told, "-X", "session.timeout.ms=9000").refusal
    assert "`session.timeout.ms` is not supported for `group.protocol=consumer`" in refusal


def test_a_member_for_whom_nothing_is_left_ends_at_the_end_of_nothing() -> None:
    """Where a group has more members than there are partitions."""

    class Spare:
        def subscribe(self, topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
            self.on_assign = on_assign

        def poll(self, timeout_s: float) -> None:
            self.on_assign(self, [])

    consumer: Any = Spare()
    loop = ConsumeLoop(consumer, values(b"\n", b"").renderer(), BytesIO(), Limits(ends_at_end=True))
    loop.share("readers", ["orders"])
    loop.run()


def test_a_group_takes_patterns_of_topics(oncelog: Oncelog, filled: str) -> None:
    assert sorted(oncelog("consume", "-G", f"of-{filled}", f"^{filled}$", "-e", "-q").lines)[0] == "other"


def test_a_new_group_begins_at_the_end_where_it_is_told_so(oncelog: Oncelog, filled: str) -> None:
    assert oncelog("consume", "-G", "g-end", "-t", filled, "-o", "end", "-e", "-q").lines == []


def test_what_a_group_has_stored_is_read_from_without_joining_it(oncelog: Oncelog, filled: str) -> None:
    oncelog("groups reset", "g-stored", "-t", filled, "-p", "0", "-o", "3")
    said = oncelog("consume", "-t", filled, "-p", "0", "-o", "stored", "-X", "group.id=g-stored", "-e", "-q")
    assert said.lines == ["v3", "v4"]


# --- what cannot be done


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ([], 2, "no topic is named: -t TOPIC"),
        (["-t", "{topic}", "-o", "start"], 2, "-o start: expected beginning, end, stored, an offset"),
        (["-t", "{topic}", "-o", "s@noon"], 2, "-o s@noon: expected milliseconds since 1970"),
        (["-t", "{topic}", "-o", "1", "-o", "2"], 2, "there can be one start only"),
        (["-t", "{topic}", "-o", "stored"], 2, "-X group.id=GROUP names the group"),
        (["-t", "{topic}", "-f", "%q"], 2, "-f: there is no %q"),
        (["-t", "{topic}", "-G", "g", "-p", "1"], 2, "the members of a group share all partitions"),
        (["-t", "{topic}", "-G", "g", "-o", "5"], 2, "`oncelog groups reset` takes it elsewhere"),
        (["-t", "{topic}", "-X", "fetch.min.byte=1"], 2, 'the nearest known one is "fetch.min.bytes"'),
        (["-t", "{topic}", "-X", "fetch.min.bytes=x"], 2, 'Invalid value for configuration property "fetch.min.bytes"'),
        (["-t", "{topic}", "-X", "oops"], 2, "-X oops: expected NAME=VALUE"),
        (["-t", "{topic}", "-X", "sasl.password:hunter2"], 2, "-X sasl.password: expected NAME=VALUE"),
        (["-t", "{topic}", "-p", "3"], 1, "has the partitions 0 to 2, not 3"),
        (["-t", "{topic}", "-p", "0", "-o", "9"], 1, "[0] has the offsets 0 to 5, not 9"),
        (
            ["-t", "{topic}x"],
            1,
            "there is no topic {topic}x; the nearest known one is {topic}: `oncelog topics` lists all",
        ),
        (["-t", "{topic}", "-b", "127.0.0.1:1"], 1, "start a server with `oncelog serve`, or name another one with -b"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    oncelog: Oncelog, filled: str, options: list[str], code: int, words: str
) -> None:
    said = oncelog.run("consume", *(each.replace("{topic}", filled) for each in options))
    assert words.replace("{topic}", filled) in said.refusal
    assert (said.code, said.out) == (code, b"")


@pytest.mark.parametrize("options", [["-e"], ["-q", "-G", "of-damage"]], ids=["to the end", "quiet, a group, for ever"])
def test_damage_ends_it_behind_what_is_whole(oncelog: Oncelog, server: Server, topic: str, options: list[str]) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        for at in range(3):
            assert raw.produce(topic, 0, batch([b"batch %d" % at])).error_code == 0
    (segment,) = Path(server.data_dir).glob(f"{topic}-0/*.log")
    segment.write_bytes(segment.read_bytes().replace(b"batch 1", b"batch 7"))
    said = oncelog.run("consume", topic, *options, "-X", "fetch.message.max.bytes=1")
    assert (said.code, said.lines) == (1, ["batch 0"])
    assert [line for line in said.err.splitlines() if not line.startswith("%")] == [said.err.splitlines()[-1]]
    assert re.match(rf"Error: {topic} \[0\]: .*offset 1.* damaged.* restore the topic", said.err.splitlines()[-1])


# --- the properties that it is given


def test_properties_come_from_the_command_line_then_the_environment_then_the_file(
    oncelog: Oncelog, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# ours\nbootstrap.servers={oncelog.servers}\n\nlinger.ms=7\nfetch.min.bytes=nothing\n")
    options = ("-t", filled, "-p", "2", "-e", "-q", "-F", str(file))
    from_file = Oncelog.run(oncelog, "consume", *options)
    assert "fetch.min.bytes" in from_file.refusal
    monkeypatch.setenv("ONCELOG_CLIENT_FETCH_MIN_BYTES", "nothing either")
    assert "fetch.min.bytes" in oncelog.run("consume", *options).refusal
    monkeypatch.setenv("ONCELOG_CLIENT_FETCH_MIN_BYTES", "1")
    assert oncelog("consume", *options).lines == ["other"]
    assert oncelog.run("consume", *options, "-X", "fetch.min.bytes=none").code == 2
    monkeypatch.setenv("ONCELOG_CLIENT_FETCH_MIN_BYTES", "none")
    assert oncelog("consume", *options, "-X", "fetch.min.bytes=1").lines == ["other"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-G", ""), "-G is empty"),
        (("-D", r"\xZZ"), r"\x: expected hexadecimal digits"),
        (("-K", r"a\x"), r"\x: expected hexadecimal digits"),
        (("-f", r"%s\xg"), r"\x: expected hexadecimal digits"),
    ],
)
def test_what_names_nothing_is_wrong_usage(oncelog: Oncelog, options: tuple[str, ...], words: str) -> None:
    said = oncelog.run("consume", "-t", "t", "-e", *options)
    assert said.code == 2 and words in said.err
