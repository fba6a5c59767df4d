"""What confluent-kafka's producers have and these do not, so that a program that asks is told what to do instead."""

from typing import NoReturn

from oncelog.client.errors import KafkaError, KafkaException

WORDS = (
    "this producer has no transactions: commit positions together with a saved producer instead, by "
    "consumer.commit(offsets, producer=producer) (docs/saved-producers.md)"
)


class NoTransactions:
    def init_transactions(self, *_: object, **__: object) -> NoReturn:
        """Not there: the error says what to do instead."""
        raise KafkaException(KafkaError(KafkaError._NOT_IMPLEMENTED, WORDS))

    begin_transaction = commit_transaction = abort_transaction = send_offsets_to_transaction = init_transactions
