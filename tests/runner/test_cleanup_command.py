"""`oncelog flow cleanup MESSY PRISTINE`: each record once, without a program."""

import pytest

from oncelog.client import Producer
from oncelog.embedded import Server
from tests.cli.running import Oncelog
from tests.runner.flows import everything, make_topic

Header = list[tuple[str, bytes]]


def send(servers: str, topic: str, values: list[bytes], headers: list[Header] | None = None) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for value, header in zip(values, headers or [[] for _ in values], strict=True):
            producer.produce(topic, value=value, headers=header, partition=0)
        producer.flush()


def test_by_a_field_of_the_values_again_and_again(own_server: Server, topic: str) -> None:
    servers, messy, pristine = own_server.bootstrap_servers, f"{topic}.messy", f"{topic}.pristine"
    make_topic(servers, messy, 2)
    oncelog = Oncelog(servers)
    missing = oncelog.run("flow cleanup", messy, pristine, "--id", "id", "--until", "end").refusal
    assert f"misses topics: {pristine}, which it writes" in missing and "-p 2" in missing
    make_topic(servers, pristine, 3)
    one, two, three = (b'{"id": %d, "at": 1}' % number for number in (1, 2, 3))
    for values in ([one, two, one], [two, three, three]):
        send(servers, messy, values)
        oncelog("flow cleanup", messy, pristine, "--id", "id", "--until", "end")
    assert [value for _, value in everything(servers, pristine)] == [one, two, three]
    name = f"cleanup-{messy.replace('.', '-')}"
    assert name in [each["flow"] for each in oncelog("flow list", "-J").json]
    send(servers, messy, [b'{"ID": 4}'])
    said = oncelog.run("flow cleanup", messy, pristine, "--id", "id", "--until", "end").refusal
    assert f"the record at offset 6 of {messy}: ValueError: its value is no JSON object with something in its" in said


def test_by_the_header_that_says_where_a_copy_comes_from(own_server: Server, topic: str) -> None:
    servers, messy, pristine = own_server.bootstrap_servers, f"{topic}-messy", f"{topic}-pristine"
    for each in (messy, pristine):
        make_topic(servers, each, 1)
    offsets = (0, 1, 0, 1, 2)
    headers: list[Header] = [[("oncelog.source", b"there/0/%d" % offset)] for offset in offsets]
    send(servers, messy, [b"%d" % offset for offset in offsets], headers)
    Oncelog(servers)("flow cleanup", messy, pristine, "--name", topic, "--until", "end")
    assert [value for _, value in everything(servers, pristine)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("given", "said"), [([], "Missing argument 'MESSY'"), (["a"], "Missing argument 'PRISTINE'")])
def test_what_is_not_said_is_asked_for(given: list[str], said: str) -> None:
    assert said in Oncelog("127.0.0.1:1").run("flow cleanup", *given).err
