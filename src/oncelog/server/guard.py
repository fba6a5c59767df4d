"""The state that all connections share whose clients have to prove who they are."""

import logging
from collections.abc import Callable

from oncelog.security import brokers
from oncelog.server.broker import Broker
from oncelog.server.proofs import BrokerProof, Proof, new_proof
from oncelog.server.strangers import Strangers

Log = Callable[..., None]  # at a limited rate

BARRED = "it has failed too often of late to prove who it is"
_SHOWN_CHARACTERS = 100


class Guard:
    def __init__(self, broker: Broker, log: Log) -> None:
        self._broker = broker
        self._log = log
        self.strangers = Strangers(lambda: broker.clock.now().monotonic_ms)

    @property
    def knows_brokers(self) -> bool:
        return bool(self._broker.cluster.secret)

    def begin(self, mechanism: str, listener: str) -> Proof:
        if mechanism == brokers.MECHANISM:
            return BrokerProof(self._broker.cluster.secret)
        broker = self._broker
        return new_proof(mechanism, broker.users.now, broker.passwords, lambda: broker.tokens.of(listener))

    def is_barred(self, host: str) -> bool:
        is_barred = self._broker.failures.is_barred(host, self._broker.clock.now().monotonic_ms)
        if is_barred:
            self._broker.metrics.authentications_barred += 1
        return is_barred

    def count_failure(self, host: str) -> None:
        self._broker.failures.note(host, self._broker.clock.now().monotonic_ms)

    def say_failure(self, host: str, mechanism: str, name: str, why: str) -> None:
        """A name that nobody has is not written down: it may be a password that got into the wrong field."""
        self._broker.metrics.authentications_failed += 1
        is_known = bool(self._broker.users.now.mechanisms(name))
        who = f"to be {name[:_SHOWN_CHARACTERS]!r}" if is_known else "who it is"
        self._log(logging.WARNING, "%s did not prove %s by %s: %s", host, who, mechanism or "SASL", why)
