"""Rules are agreed on: what is made at one broker counts on all, and brokers go on copying from each other."""

from kio.schema.errors import ErrorCode

from oncelog.embedded import Server
from oncelog.security.operations import Operation, Resource
from tests.peers import rights
from tests.raw import RawConnection, Rec, batch
from tests.waiting import until


def test_a_rule_made_at_one_broker_counts_on_all() -> None:
    with Server(brokers=3, settings=rights.SETTINGS) as server:
        brokers = server.bootstrap_servers.split(",")
        assert len(brokers) == 3
        with RawConnection(brokers[0]) as admin:
            rights.open_to_one_host(admin)
            wanted = [{"name": "orders", "num_partitions": 1, "replication_factor": 3}]
            made = admin.call("create_topics", 5, topics=wanted, timeout=10_000, validate_only=False)
            assert made.topics[0].error_code is ErrorCode.none
            rights.give(admin, [rights.rule(Resource.TOPIC, Operation.DESCRIBE, name="orders")])

        def seen(address: str) -> str:
            with RawConnection(address, from_host=rights.THERE) as other:
                (topic,) = other.call(
                    "metadata", 9, topics=[{"name": "orders"}], allow_auto_topic_creation=False
                ).topics
            name: str = topic.error_code.name
            return name

        for each in brokers:
            until(lambda at=each: seen(at) == "none", f"the right to be known at {each}")  # type: ignore[misc]
        with RawConnection(brokers[1]) as admin:
            rights.take_back(admin)
        for each in brokers:
            until(lambda at=each: seen(at) == "topic_authorization_failed", f"the right to be gone at {each}")  # type: ignore[misc]
        until(lambda: ErrorCode.none in map(write, brokers), "a record that all replicas have")


def write(address: str) -> ErrorCode:
    """By all replicas: with acks=all only what followers have fetched is answered."""
    with RawConnection(address) as connection:
        code: ErrorCode = connection.produce("orders", 0, batch([Rec(value=b"v")]), acks=-1).error_code
        return code
