"""Stock clients, while the brokers they speak to are killed, hang and are stopped: what an idempotent producer was told
is there once and in order, a member of a group misses nothing, and no error reaches either."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from oncelog.cluster.parent import Parent, copies
from tests.cluster.elections import Elections, Harm
from tests.cluster.stock.checks import check_reading
from tests.cluster.stock.doors import IMPATIENT_MS, Member, Sender
from tests.cluster.stock.in_c import LibrdkafkaMember, LibrdkafkaSender, OurMember, OurSender
from tests.cluster.stock.in_go import FranzMember, FranzSender
from tests.cluster.stock.in_go import program as franz_program
from tests.cluster.stock.in_java import JavaMember
from tests.cluster.stock.in_python import AiokafkaMember, AiokafkaSender, KafkaPythonMember, KafkaPythonSender
from tests.cluster.writing import PARTITIONS, Writing, check
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)  # where franz-go is built first
AT_ONCE = 300
PATIENCE_S = 60
BROKERS_SESSION_MS = IMPATIENT_MS * 3 // 5
ALL = frozenset(range(PARTITIONS))
SENDERS: Final[dict[str, Callable[[str], Sender]]] = {
    "aiokafka": AiokafkaSender,
    "kafka-python": KafkaPythonSender,
    "librdkafka": LibrdkafkaSender,
    "oncelog": OurSender,
    "franz-go": FranzSender,
}
MEMBERS: Final[dict[str, type[Member]]] = {
    "aiokafka": AiokafkaMember,
    "kafka-python": KafkaPythonMember,
    "librdkafka": LibrdkafkaMember,
    "oncelog": OurMember,
    "franz-go": FranzMember,
    "java": JavaMember,
}
NEEDED: Final[dict[str, Callable[[], object]]] = {"franz-go": franz_program, "java": kafka_jars}


def clients(names: Sequence[str], *usual: str) -> pytest.MarkDecorator:
    """Those of `usual` in the usual run."""
    rest = (pytest.param(name, marks=pytest.mark.thorough) for name in names if name not in usual)
    return pytest.mark.parametrize("client", [*usual, *rest])


@pytest.fixture
def elections(client: str, tmp_path: Path) -> Iterator[Elections]:
    """A broker that hangs is missed before its clients give up an answer, so they are told the next one at once."""
    if client in NEEDED:
        try:
            NEEDED[client]()
        except MissingPeer as missing:
            need_or_skip(missing)
    settings = copies(3) | {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
    with Parent(str(tmp_path), 3, settings, session_timeout_ms=BROKERS_SESSION_MS) as brokers:
        yield Elections(brokers, tmp_path)


def assert_read_once_and_in_order(member: Member) -> None:
    """Or once more from what was committed, where the client gave its membership up by itself."""
    for partition in ALL:
        offsets = [each.offset for each in member.seen if each.partition == partition]
        jumps = [(before, after) for before, after in pairwise(offsets) if after != before + 1]
        back = [(before, after) for before, after in jumps if after <= before]
        unexpected = jumps if len(back) > member.joined_anew else [jump for jump in jumps if jump not in back]
        assert (partition, unexpected) == (partition, [])


@clients([name for name in MEMBERS if name in SENDERS], "aiokafka")
def test_what_a_client_had_no_answer_to_is_there_once(client: str, elections: Elections) -> None:
    """First where the next leader has it, and must know it when it comes again; then where that may lack it."""
    with at_work(client, client, elections) as (writing, member, _):
        for held in (1, 2):
            with elections.without_an_answer(lambda: writing.send(AT_ONCE), held):
                writing.send(AT_ONCE)
                writing.end()
            until_read(member, writing)


@pytest.mark.thorough
@pytest.mark.parametrize("client", MEMBERS)
def test_a_client_goes_on_while_brokers_hang_and_go_one_after_the_other(client: str, elections: Elections) -> None:
    with at_work(client if client in SENDERS else "oncelog", client, elections) as (writing, member, group):
        for harm in (Harm.PAUSE, Harm.STOP):
            for find in (elections.leader, lambda: elections.coordinator(group)):
                writing.send(AT_ONCE)
                with elections.without(find(), harm):
                    writing.send(AT_ONCE)
                    writing.end()
                until_read(member, writing)


@contextmanager
def at_work(sends: str, reads: str, elections: Elections) -> Iterator[tuple[Writing, Member, str]]:
    """One that sends, and the only member of a group, who never has a reason to read anything again."""
    servers, group = elections.server.bootstrap_servers, f"readers-{reads}"
    with SENDERS[sends](servers) as sender, MEMBERS[reads](servers, group) as member:
        writing = Writing(sender)
        until(lambda: member.assigned == ALL, "the member to have all partitions", give_up_seconds=PATIENCE_S)
        writing.send(AT_ONCE)
        until_read(member, writing)
        yield writing, member, group
    check(servers, writing)
    check_reading(servers, group, [member])
    assert_read_once_and_in_order(member)


def until_read(member: Member, writing: Writing) -> None:
    until(lambda: is_all_read(writing, member), "all to be read", give_up_seconds=PATIENCE_S)


@clients([*MEMBERS], "kafka-python")
def test_a_group_is_shared_anew_while_its_coordinator_goes(client: str, elections: Elections) -> None:
    """Another member joins while the coordinator is dead, and leaves; then the next coordinator is stopped."""
    servers, group, kind = elections.server.bootstrap_servers, f"shared-{client}", MEMBERS[client]
    with OurSender(servers) as sender, kind(servers, group) as first:
        writing = Writing(sender)
        until(lambda: first.assigned == ALL, "the first to have all partitions", give_up_seconds=PATIENCE_S)
        writing.send(AT_ONCE)
        until_read(first, writing)
        with elections.without(elections.coordinator(group), Harm.KILL), kind(servers, group) as second:
            writing.send(AT_ONCE)
            until(lambda: is_shared(first, second), "both to share the partitions", give_up_seconds=PATIENCE_S)
            writing.end()
            until(lambda: is_all_read(writing, first, second), "all to be read by both", give_up_seconds=PATIENCE_S)
        with elections.without(elections.coordinator(group), Harm.STOP):
            writing.send(AT_ONCE)
            until(lambda: first.assigned == ALL, "who is left to have all partitions", give_up_seconds=PATIENCE_S)
            writing.end()
            until(lambda: is_all_read(writing, first, second), "the rest to be read", give_up_seconds=PATIENCE_S)
    check(servers, writing)
    check_reading(servers, group, [first, second])


def is_shared(*members: Member) -> bool:
    held = [partition for member in members for partition in member.assigned]
    return sorted(held) == sorted(ALL) and all(member.assigned for member in members)


def is_all_read(writing: Writing, *members: Member) -> bool:
    return len({each.number for member in members for each in member.seen}) == writing.sent


@pytest.mark.thorough
def test_an_admin_client_that_was_told_a_controller_which_is_killed_asks_another() -> None:
    """It does not wait for that one to come back until `socket.timeout.ms` is over, a minute."""
    with oncelog.Server(brokers=3) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers.split(",")[0]})
        controller = admin.describe_cluster().result(PATIENCE_S).controller.id

        def is_made() -> bool:
            made = admin.create_topics([NewTopic("meanwhile", 1)], request_timeout=PATIENCE_S // 3)
            try:
                made["meanwhile"].result()
            except KafkaException as error:
                return bool(error.args[0] == KafkaError.TOPIC_ALREADY_EXISTS)
            return True

        server.kill(controller)
        until(is_made, "a topic to be made", give_up_seconds=PATIENCE_S / 2)
