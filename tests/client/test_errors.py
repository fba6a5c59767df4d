"""Numbers, names and words of errors are librdkafka's; what may be sent again is Kafka's."""

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from oncelog.client.errors import KafkaError, KafkaException, error_of, is_retriable
from oncelog.client.types import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, TopicPartition
from oncelog.error_codes import NAMES

THEIRS = {
    name: value
    for name, value in vars(confluent_kafka.KafkaError).items()
    if isinstance(value, int) and not name.startswith("__")
}


def test_every_error_of_librdkafka_has_its_number_its_name_and_its_words() -> None:
    for name, code in THEIRS.items():
        real, ours = confluent_kafka.KafkaError(code), KafkaError(code)
        assert (getattr(KafkaError, name), ours.name(), ours.str()) == (code, real.name(), real.str())
    assert len(THEIRS) > 150


def test_every_error_of_kafka_has_a_name() -> None:
    assert [error.name for error in ErrorCode if error.value not in NAMES] == []


def test_what_may_be_sent_again_is_what_kafka_says() -> None:
    assert {error.value for error in ErrorCode if is_retriable(error.value)} == {
        error.value for error in ErrorCode if error.retriable
    }


def test_an_unknown_number_is_shown_as_librdkafka_shows_it() -> None:
    assert (KafkaError(998).name(), KafkaError(998).str()) == ("ERR_998?", "Err-998?")


@pytest.mark.parametrize("fatal", [True, False])
def test_an_error_prints_as_in_confluent_kafka(fatal: bool) -> None:
    assert repr(KafkaError(7, "so", fatal=fatal)) == repr(confluent_kafka.KafkaError(7, "so", fatal))


def test_an_error_is_equal_to_its_number() -> None:
    assert KafkaError(7) == 7 == KafkaError(7, "other words")
    assert KafkaError(7) != KafkaError(8) and KafkaError(7) != "7"
    assert {KafkaError(7): 1}[KafkaError(7)] == 1


def test_an_exception_carries_its_error_as_first_argument() -> None:
    error = KafkaError(KafkaError._TIMED_OUT)
    assert KafkaException(error).args == (error,)


def test_a_brokers_own_message_follows_the_known_words() -> None:
    assert error_of(3).str() == "Broker: Unknown topic or partition"
    assert error_of(3, "no topic x").str() == "Broker: Unknown topic or partition: no topic x"
    assert error_of(3).retriable() and not error_of(29).retriable()


def test_partitions_are_equal_by_name_and_number_as_in_confluent_kafka() -> None:
    assert TopicPartition("a", 1, 3) == TopicPartition("a", 1, 4)
    assert TopicPartition("a", 1) < TopicPartition("a", 2) < TopicPartition("b", 0)
    assert len({TopicPartition("a", 1, 3), TopicPartition("a", 1, 4)}) == 1
    assert TopicPartition("a").offset == OFFSET_INVALID and TopicPartition("a").leader_epoch is None


def test_offsets_that_stand_for_a_place_are_librdkafkas() -> None:
    theirs = (
        confluent_kafka.OFFSET_BEGINNING,
        confluent_kafka.OFFSET_END,
        confluent_kafka.OFFSET_STORED,
        confluent_kafka.OFFSET_INVALID,
    )
    assert theirs == (OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, OFFSET_INVALID)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (None, "Broker: Cluster authorization failed"),
        ("Cluster authorization failed.", "Broker: Cluster authorization failed"),
        ("Cluster authorization failed", "Broker: Cluster authorization failed"),
        ("Cluster authorization failed: ask ann", "Broker: Cluster authorization failed: ask ann"),
        ("Authorization failed.", "Broker: Cluster authorization failed"),
        ("ask ann", "Broker: Cluster authorization failed: ask ann"),
    ],
)
def test_a_broker_that_repeats_the_words_of_its_code_is_told_once(message: str | None, said: str) -> None:
    assert error_of(KafkaError.CLUSTER_AUTHORIZATION_FAILED, message).str() == said
