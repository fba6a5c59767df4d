"""How far an identity got, as the running producer asks when its answers were lost."""

import pytest

from oncelog.client.net.brokers import Brokers
from oncelog.client.saving import CannotResume
from oncelog.client.saving.look_up import look_up
from oncelog.clock import wall_s
from oncelog.slots import Identity, Place
from oncelog.slots.messages import LookUp, StoredSpan
from tests.client.saving.written import Written, new_writer
from tests.raw import RawConnection
from tests.waiting import until

only_oncelog = pytest.mark.parametrize("bootstrap_servers", ["oncelog"], indirect=True)
only_kafka = pytest.mark.parametrize("bootstrap_servers", ["kafka"], indirect=True)
UNKNOWN_PID = 4_000_000_000


def question(written: Written, from_offset: int = 0, *, must_fence: bool = False, pid: int | None = None) -> LookUp:
    identity = Identity(written.identity.pid if pid is None else pid, written.identity.generation)
    return LookUp(Place(written.topic, 0), identity, from_offset, must_fence)


async def test_the_batches_and_their_offsets_are_found(brokers: Brokers, raw: RawConnection, topic: str) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(3)
    written.others_write(2)
    written.write(4)
    found = await look_up(brokers, question(written))
    assert found.last_sequence == 6
    assert found.generation == written.identity.generation
    assert found.spans == [StoredSpan(0, 2, 0), StoredSpan(3, 6, 5)]
    assert (await look_up(brokers, question(written, 5))).spans == [StoredSpan(3, 6, 5)]


async def test_an_identity_that_stored_nothing_is_told_so(brokers: Brokers, raw: RawConnection, topic: str) -> None:
    written = await new_writer(brokers, raw, topic)
    written.others_write(2)
    found = await look_up(brokers, question(written))
    assert (found.last_sequence, list(found.spans)) == (-1, [])


@only_oncelog
async def test_a_lease_is_fenced_and_its_new_generation_is_ours(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(3)
    found = await look_up(brokers, question(written, must_fence=True))
    assert found.last_sequence == 2
    assert found.generation == (written.identity.generation + 1) % 32_768
    with pytest.raises(AssertionError, match="invalid_producer_epoch"):
        written.write(1)


@only_oncelog
async def test_a_lease_that_is_known_no_more_is_followed_in_the_log(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(3)
    found = await look_up(brokers, question(written, must_fence=True, pid=UNKNOWN_PID))
    assert (found.last_sequence, list(found.spans)) == (-1, [])


@only_kafka
async def test_without_a_place_to_read_from_the_whole_log_is_read(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(3, timestamp_ms=int(wall_s() * 1000) - 2 * 86_400_000)
    until(lambda: not raw.describe_producers(topic, 0).active_producers, "the broker forgets a producer of old records")
    found = await look_up(brokers, question(written, -1))
    assert (found.last_sequence, found.spans) == (2, [StoredSpan(0, 2, 0)])


@only_kafka
async def test_without_a_place_to_read_from_the_leaders_memory_is_enough(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(3)
    assert (await look_up(brokers, question(written, -1))).last_sequence == 2


@only_kafka
async def test_somebody_elses_epoch_stops(brokers: Brokers, raw: RawConnection, topic: str) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(3)
    asked = question(written)
    written.identity = written.identity._replace(generation=4)
    written.next_sequences = {}
    written.write(1)
    with pytest.raises(CannotResume, match="the broker knows epoch 4, ours is 0"):
        await look_up(brokers, asked)
