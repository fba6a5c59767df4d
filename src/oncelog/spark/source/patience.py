"""Asking a cluster again while the failure is one that passes, and not for ever."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, is_retriable
from oncelog.client.net.warm import Warm
from oncelog.spark.source.errors import in_words

T = TypeVar("T")

# A server that was never reached is more likely a wrong address than one that is away for a moment.
FIRST_CONTACT_S: Final = 20.0
PAUSE_S: Final = 0.1


class Patience:
    """`patience_s` is for a cluster that has answered before; `settle_s` for what may not be known yet."""

    def __init__(self, client: Warm, servers: str, patience_s: float, settle_s: float) -> None:
        self._client = client
        self._servers = servers
        self._patience_s = patience_s
        self._settle_s = min(settle_s, patience_s)
        self._has_answered = False

    def spend_on(self, ask: Callable[[], Coroutine[Any, Any, T]], *, settles: tuple[type[Exception], ...] = ()) -> T:
        """The answer; `settles` are failures that a broker may take back within moments."""
        with in_words():
            return self._client.thread.run(self._ask(ask, settles))

    async def _ask(self, ask: Callable[[], Coroutine[Any, Any, T]], settles: tuple[type[Exception], ...]) -> T:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        patience_s = self._patience_s if self._has_answered else min(FIRST_CONTACT_S, self._patience_s)
        while True:
            try:
                async with asyncio.timeout_at(began_s + patience_s):
                    answer = await ask()
                self._has_answered = True
                return answer
            except settles:
                self._has_answered = True
                if loop.time() >= began_s + self._settle_s:
                    raise
            except TimeoutError:
                raise self._too_late(patience_s) from None
            except KafkaException as failure:
                self._client.trouble = failure.error
                if not failure.error.retriable() and not is_retriable(failure.error.code()):
                    raise
                if loop.time() >= began_s + patience_s:
                    raise self._too_late(patience_s) from None
            await asyncio.sleep(PAUSE_S)

    def _too_late(self, patience_s: float) -> KafkaException:
        trouble = self._client.trouble
        why = f": {trouble.str()}" if trouble is not None else ""
        words = f"{self._servers} did not answer within {patience_s:g} s{why}"
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))
