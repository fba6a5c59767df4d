"""A producer that is killed and started again tells of every message, once more or for the first time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.chaos import sending
from oncelog.chaos.sender_report import Reports
from oncelog.chaos.sending import Client, Life, Order


class Message:
    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value


class Instant(Client):
    """Has stored whatever it was given by the time it is flushed."""

    def __init__(self) -> None:
        self._given: list[tuple[bytes, Callable[..., None]]] = []

    def produce(self, topic: str, value: bytes, partition: int, on_delivery: Callable[..., None]) -> bool:
        self._given.append((value, on_delivery))
        return True

    def poll(self, timeout_s: float) -> None:
        """Nothing is stored before it is flushed."""

    def flush(self, timeout_s: float) -> int:
        given, self._given = self._given, []
        for value, on_delivery in given:
            on_delivery(None, Message(value))
        return 0


def test_what_lies_before_a_saved_position_was_told_before_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    saved: list[tuple[int, list[int]]] = []
    reports = Reports()

    def write(data: bytes) -> None:
        for report in reports.take(data):
            told.extend(report.confirmed.tolist())

    def save(path: str, state: dict[str, Any]) -> None:
        saved.append((state["next"], list(told)))

    monkeypatch.setattr(sending, "client_of", lambda order, state: Instant())
    monkeypatch.setattr(sending, "write_state", save)
    monkeypatch.setattr(sending, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(sending, "TELL_EVERY_S", 1e9)  # as if it had told just before
    order = Order("oncelog", "", "t", 1, 2 * sending.POLL_EVERY + 1, state=str(tmp_path / "state"))
    assert Life(order, write).run() == 0
    assert [position for position, _ in saved] == [0, 1, sending.POLL_EVERY + 1, 2 * sending.POLL_EVERY + 1]
    for position, told_by_then in saved:
        assert told_by_then == list(range(position))
