"""The arguments of a consumer's calls, checked before anything is done with them."""

import threading
from collections.abc import Iterable, Sequence

from oncelog.arguments import as_number, as_whole
from oncelog.client.consumer.message import Message
from oncelog.client.errors import invalid_argument
from oncelog.client.fetching.values import EARLIEST, LATEST, STORED
from oncelog.client.groups.commits import ToCommit
from oncelog.client.types import OFFSET_INVALID, TopicPartition
from oncelog.slots import AnyPlace

MOST_OFFSET = 2**63 - 1
MOST_PARTITION = 2**31 - 1


def topic_partitions(given: object) -> list[TopicPartition]:
    """A list of TopicPartition, each of which names one partition."""
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        raise TypeError(f"expected a list of TopicPartition, not {type(given).__name__}")
    partitions = list(given)
    for each in partitions:
        topic_partition(each)
    return partitions


def topic_partition(given: object) -> TopicPartition:
    if not isinstance(given, TopicPartition):
        raise TypeError(f"expected a TopicPartition, not {type(given).__name__}")
    number = as_whole(given.partition)
    if not isinstance(given.topic, str) or number is None:
        raise TypeError(f"a topic is a str and a partition an int, not {given.topic!r} and {given.partition!r}")
    check_name(given.topic)
    if not 0 <= number <= MOST_PARTITION:
        raise invalid_argument(f"no partition is named by topic {given.topic!r} and partition {number}")
    given.partition = number  # where it was numpy's
    return given


def partition_of(given: TopicPartition) -> AnyPlace:
    return given.topic, given.partition


def place_of(given: TopicPartition) -> tuple[AnyPlace, int, int]:
    """The offset to begin at; one that is not given is the committed one."""
    offset = STORED if given.offset == OFFSET_INVALID else as_whole(given.offset)
    if offset is None or offset > MOST_OFFSET or (offset < 0 and offset not in (EARLIEST, LATEST, STORED)):
        raise invalid_argument(f"{given.topic} [{given.partition}]: there is no offset {given.offset!r}")
    return partition_of(given), offset, -1 if given.leader_epoch is None else given.leader_epoch


def to_commit(message: object, offsets: object) -> dict[AnyPlace, ToCommit] | None:
    """The offsets to commit: for a message, the one behind it. None where neither argument is given."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets cannot both be given")
    if message is not None:
        if not isinstance(message, Message):
            raise TypeError(f"expected a Message, not {type(message).__name__}")
        if message.error() is not None:
            raise invalid_argument(f"an error is no record: {message.error()}")
        epoch = message.leader_epoch()
        return {(message.topic(), message.partition()): ToCommit(message.offset() + 1, -1 if epoch is None else epoch)}
    if offsets is None:
        return None
    wanted: dict[AnyPlace, ToCommit] = {}
    for each in topic_partitions(offsets):
        offset = as_whole(each.offset)
        if offset is None or not 0 <= offset <= MOST_OFFSET:
            raise invalid_argument(f"{each.topic} [{each.partition}]: offset {each.offset!r} cannot be committed")
        if each.metadata is not None and not isinstance(each.metadata, str):
            where = f"{each.topic} [{each.partition}]"
            raise TypeError(f"{where}: what is committed as metadata is a str, not {type(each.metadata).__name__}")
        epoch = -1 if each.leader_epoch is None else each.leader_epoch
        wanted[partition_of(each)] = ToCommit(offset, epoch, each.metadata or "")
    return wanted


def topics(given: object) -> Sequence[str]:
    """Names, and patterns that begin with ^."""
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        raise TypeError(f"expected a list of topics, not {type(given).__name__}")
    names = list(given)
    for each in names:
        if not isinstance(each, str):
            raise TypeError(f"a topic is a str, not {type(each).__name__}")
        check_name(each)
    return names


def check_name(topic: str) -> None:
    """Whether a request could carry it; which names there may be is for the brokers to say."""
    if not topic:
        raise invalid_argument("an empty topic name")
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        raise invalid_argument(f"{topic!r} cannot be a topic: {error.reason}") from None


def timeout_s(given: float | None) -> float | None:
    """None and anything below zero wait for ever."""
    if given is None:
        return None
    number = as_number(given)
    if number is None:
        raise TypeError(f"a timeout is a number of seconds, not {given!r}")
    if number != number:
        raise ValueError("a timeout is a number of seconds, not nan")
    return None if number < 0 or number > threading.TIMEOUT_MAX else float(number)
