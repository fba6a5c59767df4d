"""The worked example of the article on Kafka's idempotent producer, and those of the proposal, as they are told there.

The article counts its sequence numbers from 1; on the wire they start at 0, so message Mn carries the number n - 1.
"""

import pytest

from oncelog.producers import FIRST_KAFKA_PID, Decision
from tests.producers.partition import Answer, Partition

LEASED, OF_KAFKA = 1, FIRST_KAFKA_PID
both_kinds = pytest.mark.parametrize("pid", [LEASED, OF_KAFKA], ids=["leased", "kafka"])

WRITTEN = Decision.APPEND
REJECTED = Decision.DUPLICATE  # "rejected, SN <= Max SN": not written again, and the producer is told that it is there


class Producer:
    def __init__(self, partition: Partition, pid: int) -> None:
        self.partition = partition
        self.pid = pid

    def sends(self, message: int) -> Decision:
        answer = self.partition.send(self.pid, 0, message - 1, f"M{message}")
        return answer.decision

    @property
    def max_sequence_number(self) -> int:
        known = self.partition.map.highwater(self.pid)
        assert known is not None
        return known[1] + 1


@both_kinds
def test_ten_messages_and_a_connection_that_fails_after_the_seventh(pid: int) -> None:
    partition = Partition()
    producer = Producer(partition, pid)

    # M1 to M6 are written. The connection fails just after M7 was sent: the broker never sees it, and the producer has
    # been told of M1 to M3 only.
    for message in (1, 2, 3, 4, 5, 6):
        assert producer.sends(message) is WRITTEN
        assert producer.max_sequence_number == message

    # "So messages 4, 5, 6 and 7 are resent, then messages 8 to 10."
    assert producer.sends(4) is REJECTED
    assert producer.sends(5) is REJECTED
    assert producer.sends(6) is REJECTED
    assert producer.max_sequence_number == 6
    for message in (7, 8, 9, 10):
        assert producer.sends(message) is WRITTEN
        assert producer.max_sequence_number == message

    assert partition.values == ["M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M9", "M10"]


def test_without_a_pid_the_same_messages_are_written_twice() -> None:
    partition = Partition()
    producer = Producer(partition, -1)
    for message in (1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9, 10):
        assert producer.sends(message) is WRITTEN
    assert partition.values == [f"M{n}" for n in (1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9, 10)]


@both_kinds
def test_messages_sent_without_waiting_are_not_stored_out_of_order(pid: int) -> None:
    """The proposal: M1, M2, M3 are on their way, M2 fails. Without sequence numbers the log would read M1, M3, M2."""
    partition = Partition()
    producer = Producer(partition, pid)

    assert producer.sends(1) is WRITTEN
    # M2 is lost. "If any request fails we will automatically fail all other in-flight requests."
    assert producer.sends(3) is Decision.OUT_OF_ORDER
    assert partition.values == ["M1"]

    # "... which will allow us to thus retain retry the full set in order."
    assert producer.sends(2) is WRITTEN
    assert producer.sends(3) is WRITTEN
    assert partition.values == ["M1", "M2", "M3"]


@both_kinds
def test_a_broker_that_fails_recognises_the_messages_from_its_log(pid: int) -> None:
    """ "Because all messages are replicated to followers, a follower that is elected already has all the data." """
    partition = Partition()
    producer = Producer(partition, pid)
    for message in (1, 2, 3):
        producer.sends(message)
    partition.restart()
    assert partition.send(pid, 0, 1, "M2") == Answer(REJECTED, 1)
    assert producer.sends(4) is WRITTEN
    assert partition.values == ["M1", "M2", "M3", "M4"]


def test_a_process_that_copies_saves_its_position_with_its_numbers_and_resumes_without_a_duplicate() -> None:
    """The proposal's transitive case: "several of its initial requests may be rejected"."""
    partition = Partition()
    inputs = [f"M{n}" for n in range(1, 11)]
    generation, saved_position = 9, 4  # saved after M4 was acknowledged; the input's position is the sequence here
    for sequence, message in enumerate(inputs[:7]):
        partition.send(LEASED, generation, sequence, message)

    # It crashes after M7, restarts from what it saved, and sends everything from there again.
    assert partition.fence(LEASED, generation + 1) == (Decision.APPEND, 6)
    decisions = [
        partition.send(LEASED, generation + 1, sequence, message).decision
        for sequence, message in enumerate(inputs[saved_position:], saved_position)
    ]

    assert decisions == [REJECTED] * 3 + [WRITTEN] * 3
    assert partition.values == inputs
