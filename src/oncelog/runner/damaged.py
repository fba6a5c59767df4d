"""Inputs that cannot be read on: what passes by itself is waited for, and all else stops the cell."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from oncelog.client import KafkaError
from oncelog.client.door import UNKNOWN, Input
from oncelog.flow.description import Stage

_log: Final = logging.getLogger("oncelog.flow")

DAMAGED_S: Final = 5.0  # so long a broker says so before that is believed: another replica may lead by then


class Trouble:
    def __init__(
        self, stage: Stage, reset: str, fail: Callable[[str, str], None], leave: Callable[[str], None]
    ) -> None:
        """`reset`: the command that begins behind it. `fail`: of a topic, and why. `leave`: what was read before is
        committed, and then it ends."""
        self._title = stage.title
        self._remedy = (
            "Restore the file from a backup and start the flow again; where there is none, "
            f"{reset} begins anew behind what is there"
        )
        self._fail, self._leave = fail, leave

    def met(self, reading: Callable[[], Input | None], error: KafkaError) -> None:
        """`reading`: the input, if it is still read."""
        code = error.code()
        if code in UNKNOWN:
            _log.warning("%s: %s", self._title, error.str())
        elif code == KafkaError.INVALID_MSG:
            asyncio.get_running_loop().call_later(DAMAGED_S, self._look_again, reading)
        elif code == KafkaError._BAD_MSG:
            self._leave(f"{error.str()}. {self._remedy}")
        elif (one := reading()) is not None:
            self._fail(one.partition[0], error.str())

    def _look_again(self, reading: Callable[[], Input | None]) -> None:
        one = reading()
        if one is not None and one.told == KafkaError.INVALID_MSG:
            topic, index = one.partition
            self._leave(
                f"{topic}-{index} is damaged at offset {one.fetches_from}, as its broker says (CORRUPT_MESSAGE). "
                f"{self._remedy}"
            )
