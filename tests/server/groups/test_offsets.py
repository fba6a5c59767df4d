"""What groups have committed, in memory: a batch at once, and one by one."""

from random import Random

from oncelog.server.groups.offsets import Offsets, TopicPartition
from oncelog.server.groups.records import CommittedOffset


def some(random: Random, number: int) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(f"t{random.randrange(3)}", random.randrange(5)): CommittedOffset(
            number, 1, "m" * random.randrange(50), 2, random.choice((-1, 9))
        )
        for _ in range(random.randrange(1, 8))
    }


def test_what_one_batch_has_stored_is_as_if_each_were_put() -> None:
    random, together, one_by_one = Random(5), Offsets(), Offsets()
    for number in range(500):
        group, committed = f"g{random.randrange(3)}", some(random, number)
        expected_bytes = together.held_bytes + together.growth_bytes(group, committed)
        together.put_all(group, committed, number)
        assert together.held_bytes == expected_bytes
        for at, each in committed.items():
            one_by_one.put(group, *at, each._replace(end_offset=number))
            assert type(together.get(group, *at)) is CommittedOffset
        if random.random() < 0.3:
            for offsets in (together, one_by_one):
                offsets.forget(f"g{number % 3}")
        assert (together.groups(), together.topics()) == (one_by_one.groups(), one_by_one.topics())
        for name in one_by_one.groups():
            assert list(together.of_group(name)) == list(one_by_one.of_group(name))
        for topic in one_by_one.topics():
            assert list(together.of_topic(topic)) == list(one_by_one.of_topic(topic))
        assert together.held_bytes == one_by_one.held_bytes
