"""TLS of one listener: the context of new connections, which follows its files, and whose a client's certificate is."""

import hashlib
import logging
import os
import ssl
from collections.abc import Iterable
from typing import Final

from oncelog.clock import DAY_MS, HOUR_MS, Clock
from oncelog.security.certificates import BadCertificate, read_certificate
from oncelog.security.principal_mapping import NoRule, PrincipalMapping
from oncelog.server.endpoints import Endpoint
from oncelog.server.listener_settings import client_auth
from oncelog.server.settings import Settings
from oncelog.server.tls_context import TlsContext, make_context, watched_files
from oncelog.settings import SettingsError

logger = logging.getLogger(__name__)

LOOK_MS: Final = 5_000
AGAIN_MS: Final = HOUR_MS  # what could not be used may have been for want of something else: a file to open, memory
REMIND_MS: Final = DAY_MS
KNOWN_NAMES: Final = 1024  # of certificates that are mapped already

Signature = tuple[tuple[int, ...] | None, ...]


class Refused(Exception):
    """Nobody here has that certificate."""


class Tls:
    def __init__(self, endpoint: Endpoint, settings: Settings, clock: Clock) -> None:
        """Raises SettingsError."""
        self._listener = endpoint.name
        self._clock = clock
        self._settings = settings.of_listener(endpoint.name)
        self._client_auth = client_auth(settings, endpoint.name, endpoint.protocol)
        self._mapping = PrincipalMapping(self._settings.ssl_principal_mapping_rules)
        self._users: dict[bytes, str | Refused] = {}
        self._seen = self._look_at_files()
        self._current = make_context(endpoint.name, self._settings, self._client_auth)
        self._waits_until_ms: int | None = None  # where what was put there cannot be used yet
        self._reminded_ms: int | None = None
        self._remind()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection. Those that are there keep theirs."""
        return self._current.context

    @property
    def ends_ms(self) -> int:
        """The time at which the certificate ends."""
        return self._current.certificate.ends_ms

    def user(self, der: bytes) -> str:
        """The user of a certificate that OpenSSL has verified. Raises `Refused`."""
        digest = hashlib.sha256(der).digest()  # a certificate may be large
        known = self._users.get(digest)
        if known is None:
            if len(self._users) >= KNOWN_NAMES:
                self._users.clear()
            try:
                known = self._mapping.user(read_certificate(der).subject)
            except (BadCertificate, NoRule) as why:
                known = Refused(str(why))  # kept as well: to find that out may have taken its time
            self._users[digest] = known
        if isinstance(known, Refused):
            raise known
        return known

    def look(self) -> None:
        """Read the files again where they have changed. In a thread: it waits for the disk."""
        seen, now_ms = self._look_at_files(), self._clock.now().wall_ms
        if seen != self._seen or (self._waits_until_ms is not None and now_ms >= self._waits_until_ms):
            self._seen, self._waits_until_ms = seen, None
            try:
                self._current = self._better(make_context(self._listener, self._settings, self._client_auth), now_ms)
            except SettingsError as why:
                self._waits_until_ms = self._waits_until_ms or now_ms + AGAIN_MS
                logger.error("the certificate of before stays in use, since the new files cannot be used: %s", why)
            else:
                self._reminded_ms = None
                logger.info("%s: new connections get the certificate that was put there", self._listener)
        self._remind()

    def _better(self, made: TlsContext, now_ms: int) -> TlsContext:
        """Raises SettingsError where clients would refuse its certificate, and take the one that is there."""
        if made.certificate.counts_at(now_ms) or not self._current.certificate.counts_at(now_ms):
            return made
        if made.certificate.begins_ms > now_ms:
            self._waits_until_ms = made.certificate.begins_ms
        raise SettingsError(f"{self._listener}: {next(made.warnings(now_ms))}")

    def _remind(self) -> None:
        now = self._clock.now()
        if self._reminded_ms is None or now.monotonic_ms - self._reminded_ms >= REMIND_MS:
            self._reminded_ms = now.monotonic_ms
            for warning in self._current.warnings(now.wall_ms):
                logger.warning("%s: %s", self._listener, warning)

    def _look_at_files(self) -> Signature:
        return tuple(_signature(path) for path in watched_files(self._settings))


def tls_of(endpoints: Iterable[Endpoint], settings: Settings, clock: Clock) -> dict[str, Tls]:
    """The TLS of each listener. Raises SettingsError with everything that is wrong."""
    found: dict[str, Tls] = {}
    problems: list[str] = []
    for endpoint in endpoints:
        if endpoint.is_encrypted:
            try:
                found[endpoint.name] = Tls(endpoint, settings, clock)
            except SettingsError as problem:
                problems.append(str(problem))
    if problems:
        raise SettingsError("\n".join(problems))
    return found


def _signature(path: str) -> tuple[int, ...] | None:
    """With the time of the last change of anything: a file may get its owner and its rights behind its content."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
