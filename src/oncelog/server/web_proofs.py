"""Proofs by a password or a token, where they are asked for beside Kafka's protocol: on the page, and for metrics.

A wrong password takes as long as a right one for nobody's name; a failure is answered late; and who fails too often,
here or at a listener, is not looked at for a while. Who has proven it before waits for no guesser.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from oncelog.security.documents import Document, Kind
from oncelog.security.scram import Refused
from oncelog.server.broker import Broker
from oncelog.server.connections import LineLimit
from oncelog.server.tokens import SignedTokens

MOST_AT_ONCE: Final = 8  # proofs that are looked at, and failures that are answered late
WRONG: Final = "No user has this name and password."
NO_TOKEN: Final = "This token does not count."
TOO_OFTEN: Final = "Too many have failed to sign in from where you are: wait a minute."
TOO_MANY: Final = "Too many are signing in: try again."

Proven = TypeVar("Proven")


class Unproven(Exception):
    """A proof that fails, with the status by HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class WebProofs:
    """The proofs that are shown at one door."""

    def __init__(self, broker: Broker, door: str) -> None:
        self._broker = broker
        self._door = door  # for the log
        self._lines = LineLimit(broker.clock)
        self._at_work = 0
        self._late = 0

    async def of_password(self, host: str, user: str, password: str) -> Document:
        """Prove a user by a password; returns the state of the users by which it is that user's. Raises `Unproven`."""
        passwords = self._broker.passwords

        async def look() -> Document:
            users = self._broker.topics.document(Kind.USERS)
            if not (await passwords.look(user, password))[0]:
                raise Refused("a wrong name or password")
            return users

        return await self._proven(host, look, lambda: passwords.remembers(user, password), WRONG)

    async def of_token(self, host: str, tokens: SignedTokens, token: str) -> str:
        """The user that the token is of. Raises `Unproven`."""

        async def look() -> str:
            return (await tokens.check(token)).name

        return await self._proven(host, look, lambda: tokens.remembers(token), NO_TOKEN)

    async def _proven(
        self, host: str, look: Callable[[], Awaitable[Proven]], is_remembered: Callable[[], bool], wrong: str
    ) -> Proven:
        broker = self._broker
        if broker.failures.is_barred(host, self._now_ms()):
            broker.metrics.authentications_barred += 1
            raise Unproven(429, TOO_OFTEN)
        if self._at_work >= MOST_AT_ONCE and not is_remembered():
            raise Unproven(503, TOO_MANY)
        self._at_work += 1
        began_ms = self._now_ms()
        try:
            return await look()
        except Refused as refused:
            why = str(refused)
        finally:
            self._at_work -= 1
        broker.failures.note(host, self._now_ms())
        broker.metrics.authentications_failed += 1
        self._lines.log(logging.WARNING, "%s did not prove to %s who it is: %s", host, self._door, why)
        await self._be_late(began_ms)
        raise Unproven(401, wrong)

    async def _be_late(self, began_ms: int) -> None:
        """Wait, as answers to failures are late. That keeps a connection, of which there are few, but nobody's proof
        from being looked at."""
        if self._late >= MOST_AT_ONCE:
            raise Unproven(503, TOO_MANY)
        self._late += 1
        try:
            delay_ms = self._broker.settings.connection_failed_authentication_delay_ms
            await asyncio.sleep(max(0, began_ms + delay_ms - self._now_ms()) / 1000)
        finally:
            self._late -= 1

    def _now_ms(self) -> int:
        return self._broker.clock.now().monotonic_ms
