"""Reports from the engine's thread to the application's: the fate of records, errors of no record, statistics."""

from typing import TYPE_CHECKING

from oncelog.client.errors import KafkaError
from oncelog.client.producer.accumulator import Budget
from oncelog.client.producer.delivery import Outbox, Report

if TYPE_CHECKING:
    from oncelog.client.properties import ProducerSettings


class Reporter:
    """Brings reports from the engine's thread to the application's. It knows nothing of the producer, so that one that
    nobody refers to any more goes away."""

    def __init__(self, settings: "ProducerSettings", budget: Budget, outbox: Outbox) -> None:
        self._budget = budget
        self._outbox = outbox
        self._only_errors = settings.delivery_report_only_error
        self._error_cb = settings.error_cb
        self._stats_cb = settings.stats_cb
        self._has_statistics = False  # that the application has not been told

    def deliver(self, report: Report) -> None:
        records = report.records
        if records.handle is not None:
            records.give_back(self._budget)
            records.handle.report(report)
            self._outbox.notify()
        elif records.callbacks is None or (self._only_errors and report.error is None):
            records.give_back(self._budget)
            self._outbox.notify()
        else:
            self._outbox.put_report(report)

    def tell(self, error: KafkaError) -> None:
        error_cb = self._error_cb
        if error_cb is not None:
            self._outbox.put(error, lambda said, _: error_cb(said), None)

    def tell_statistics(self, text: str) -> None:
        """An application that does not poll is told once when it does."""
        if not self._has_statistics:
            self._has_statistics = True
            self._outbox.put(text, self._call_with_statistics, None)

    def _call_with_statistics(self, text: str, _: None) -> None:
        self._has_statistics = False
        if self._stats_cb is not None:
            self._stats_cb(text)
