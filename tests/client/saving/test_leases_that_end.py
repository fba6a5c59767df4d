"""A saved producer on oncelog whose leases end while it works."""

from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.producer import Producer
from oncelog.client.saving import SavedProducer
from oncelog.clock import wall_s
from oncelog.embedded import Server
from tests.client.saving.stored import stored
from tests.client.saving.test_resumed_producer import PARTITIONS, exactly, feed
from tests.raw import RawConnection
from tests.waiting import until


@contextmanager
def short_leases(lifetime_ms: int) -> Iterator[Server]:
    with Server(settings={"oncelog.lease.lifetime.ms": str(lifetime_ms)}) as server:
        yield server


def start(server: Server, saved: SavedProducer | None = None) -> Producer:
    return Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 1}, saved=saved)


class Feeding:
    """A producer that is saved after every few records. Where this machine stood still for longer than a lease lasts,
    it does what the error says: it ends that producer, and goes on from the last save."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.producer = start(server)
        self.producer.pin("out")
        self.saved = self.producer.saved()
        self.next = 0

    def feed_and_save(self, count: int) -> bool:
        """Whether it is done; otherwise the same is to be done again."""
        try:
            feed(self.producer, "out", self.next, self.next + count)
            self.saved = self.producer.saved()
        except KafkaException as ended:
            assert ended.args[0].code() == KafkaError.UNKNOWN_PRODUCER_ID, ended
            self.producer.close(0)
            self.resume()
            return False
        self.next += count
        return True

    def resume(self) -> None:
        self.producer = start(self.server, self.saved)
        self.saved = self.producer.saved()  # under a new lease, if the old one has ended meanwhile


def test_leases_that_end_all_the_time_change_only_where_they_are_saved() -> None:
    """With a lifetime of two seconds a lease is due for renewal after 1.9 of them."""
    with short_leases(2_000) as server, RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic("out", PARTITIONS) == 0
        feeding = Feeding(server)
        pids: set[int] = set()

        def saved_under_another_lease() -> bool:
            if feeding.feed_and_save(5):
                pids.update(identity.pid for identity in feeding.saved.identities)
            return len(pids) >= 4

        until(saved_under_another_lease, "three changes of lease")
        killed = feeding.producer
        feed(killed, "out", feeding.next, feeding.next + 7)
        feeding.resume()
        until(lambda: feeding.feed_and_save(20), "everything is saved")
        exactly(stored(raw, "out"), feeding.next)
        for each in (killed, feeding.producer):
            each.close(0)


def test_saves_that_are_far_apart_change_the_lease_before_it_ends() -> None:
    """The last 24th of a lease, in which it is renewed, may fall between two saves."""
    with short_leases(3_000) as server, RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic("out", PARTITIONS) == 0
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 1})
        producer.pin("out")
        saved = producer.saved()
        pids = [saved.identities[0].pid]
        for step in range(3):
            feed(producer, "out", 10 * step, 10 * step + 10)
            long_after_ms = saved.made_at_ms + 1_600
            until(lambda due_ms=long_after_ms: wall_s() * 1000 > due_ms, "more than half of the lease is gone")  # type: ignore[misc]
            saved = producer.saved()
            pids.append(saved.identities[0].pid)
        assert len(set(pids)) == 4, pids
        feed(producer, "out", 30, 40)
        again = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 1}, saved=saved)
        feed(again, "out", 30, 50)
        exactly(stored(raw, "out"), 50)
        for each in (producer, again):
            each.close(0)


def test_a_lease_that_changes_in_the_middle_of_a_replay_keeps_what_is_still_to_be_dropped() -> None:
    with short_leases(3_000) as server, RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic("out", PARTITIONS) == 0

        def start(saved: SavedProducer | None = None) -> Producer:
            return Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 1}, saved=saved)

        first = start()
        first.pin("out")
        saved = first.saved()
        feed(first, "out", 0, 100)
        second = start(saved)
        feed(second, "out", 0, 40)
        until(lambda: wall_s() * 1000 > saved.made_at_ms + 1_700, "the lease would end before another such while")
        in_the_middle = second.saved()
        assert {len(each.spans) for each in in_the_middle.topics["out"].partitions.values()} == {2}
        assert len(in_the_middle.identities) > 1
        feed(second, "out", 40, 120)
        third = start(in_the_middle)
        feed(third, "out", 40, 150)
        exactly(stored(raw, "out"), 150)
        for each in (first, second, third):
            each.close(0)
