"""The files of first steps, for their owner alone, in `secure/` of the data folder:

authority.pem, authority.key    whom clients trust, and what its certificates are signed with
server.pem                      the server's certificate and key; it follows names, addresses and time
client.properties               how oncelog's commands, librdkafka and kcat get in: -F client.properties
java.properties                 the same for Java's tools: --command-config java.properties
"""

import ipaddress
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import Final

from oncelog.clock import DAY_MS
from oncelog.first_steps.certificates import (
    Pair,
    Unreadable,
    UnreadableAuthority,
    ends_ms,
    make_authority,
    names_in,
    sign_server,
)
from oncelog.log.disk import RealDisk
from oncelog.references import properties
from oncelog.server.endpoints import WILDCARDS, Endpoint
from oncelog.server.secure import KEYSTORE, MECHANISM, USER
from oncelog.settings import SettingsError

logger = logging.getLogger(__name__)

RENEW_MS: Final = 60 * DAY_MS  # before the end
PASSWORD_BYTES: Final = 24
ELSEWHERE: Final = ("192.0.2.1", 9)  # nobody's (RFC 5737), and nothing is sent there
ELSEWHERE_6: Final = ("2001:db8::1", 9)


class SecureFolder:
    def __init__(self, folder: str) -> None:
        self.path = Path(folder).absolute()
        self.client_file = self.path / "client.properties"
        self.java_file = self.path / "java.properties"
        self.authority_file = self.path / "authority.pem"
        self._key_file = self.path / "authority.key"
        self._server_file = self.path / KEYSTORE

    def make_certificates(self, names: frozenset[str], now_ms: int) -> bool:
        """Make the certificates that are missing or near their end; whether the server's is a new one. Raises
        SettingsError for a damaged file, which is left for its owner to restore or remove."""
        self.path.mkdir(0o700, parents=True, exist_ok=True)
        try:
            return self._make_certificates(names, now_ms)
        except UnreadableAuthority:
            raise SettingsError(
                f"{self.authority_file} and {self._key_file} are not, or no longer, a certificate and its key: restore "
                "them, or take both away, and the next start makes others, of which clients on other machines need the "
                "new certificate"
            ) from None
        except Unreadable:
            raise SettingsError(
                f"{self._server_file} is not, or no longer, the certificate and the key that were made here: take it "
                "away, and the next start makes others"
            ) from None

    def _make_certificates(self, names: frozenset[str], now_ms: int) -> bool:
        if self._server_file.exists():
            there = self._server_file.read_bytes()
            has, is_trusted, left_ms = names_in(there), self._is_trusted(there), ends_ms(there) - now_ms
            if is_trusted and names <= has and left_ms > RENEW_MS:
                return False
            if is_trusted and left_ms > 0 and not self._key_file.exists():
                self._say_what_is_not_signed(names - has, left_ms)
                return False
            names |= has
        authority = self.authority(now_ms)  # only now: its key may be kept elsewhere while nothing is to be signed
        made = sign_server(authority, names, now_ms)
        write_private(self._server_file, made.key + made.certificate + authority.certificate)
        return True

    def _say_what_is_not_signed(self, lacking: frozenset[str], left_ms: int) -> None:
        """Another authority would shut out all clients that trust this one, while its certificate is still good."""
        logger.warning(
            "%s cannot be made anew without %s, and ends in %d days%s. Bring the key back, or take both files of the "
            "authority away: the next start makes others, of which clients on other machines need the new certificate",
            self._server_file,
            self._key_file,
            left_ms // DAY_MS,
            f"; it lacks {', '.join(sorted(lacking))}" if lacking else "",
        )

    def _is_trusted(self, server: bytes) -> bool:
        """Whether clients trust it that have the authority's file as it is."""
        authority = self.authority_file.read_bytes() if self.authority_file.exists() else b""
        return bool(authority) and server.endswith(authority)

    def authority(self, now_ms: int) -> Pair:
        if self.authority_file.exists() and self._key_file.exists():
            return Pair(self.authority_file.read_bytes(), self._key_file.read_bytes())
        if self._server_file.exists():
            logger.warning(
                "one of the two files of the authority is gone: clients on other machines need the new %s",
                self.authority_file,
            )
        authority = make_authority(now_ms)
        self._key_file.unlink(missing_ok=True)  # a crash must not leave it beside a certificate that is not its own
        write_private(self.authority_file, authority.certificate)
        write_private(self._key_file, authority.key)
        return authority

    def password(self) -> str | None:
        """The password as it was made once; None where the file is gone."""
        return self.client_properties().get("sasl.password")

    @property
    def remedy(self) -> str:
        """The command after which the next start makes the user anew: while it serves, nobody else may do that."""
        return f"oncelog users remove {USER} --data {quote(str(self.path.parent))}"

    def password_of(self, *, is_known: bool, write: Callable[[str], None]) -> str | None:
        """The password of the user, who may be known already; None where nobody can tell it. One that is made is in the
        files before the user has it: a crash in between must not leave a user whose password nobody knows."""
        password = self.password()
        if password is None and is_known:
            logger.warning(
                "the user %s exists, and %s is gone: go on if you know its password. Otherwise stop, run "
                "`%s`, and start again: user and file are made anew",
                USER,
                self.client_file,
                self.remedy,
            )
        elif password is None:
            password = secrets.token_urlsafe(PASSWORD_BYTES)
            write(password)
        return password

    def client_properties(self) -> dict[str, str]:
        if not self.client_file.exists():
            return {}
        try:
            lines = self.client_file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise SettingsError(f"{self.client_file} is no UTF-8: {error}. Mend it: the password is in it") from None
        return dict(properties(lines))

    def write_client_files(self, servers: str, password: str, *, trusts_authority: bool) -> None:
        authority = str(self.authority_file) if trusts_authority else None
        write_private(self.client_file, _lines(_for_librdkafka(servers, password, authority)))
        write_private(self.java_file, _lines(_for_java(servers, password, authority)))


def _for_librdkafka(servers: str, password: str, authority: str | None) -> Iterator[str]:
    yield "# How to get in: oncelog topics list -F client.properties, kcat -F client.properties -L"
    yield f"bootstrap.servers={servers}"
    yield "security.protocol=sasl_ssl"
    yield f"sasl.mechanism={MECHANISM}"
    yield f"sasl.username={USER}"
    yield f"sasl.password={password}"
    if authority:
        yield f"ssl.ca.location={authority}"


def _for_java(servers: str, password: str, authority: str | None) -> Iterator[str]:
    yield f"# How to get in: kafka-topics.sh --bootstrap-server {servers} --command-config java.properties --list"
    yield f"bootstrap.servers={servers}"
    yield "security.protocol=SASL_SSL"
    yield f"sasl.mechanism={MECHANISM}"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    yield f'sasl.jaas.config={login} required username="{USER}" password="{password}";'
    if authority:
        yield "ssl.truststore.type=PEM"
        yield f"ssl.truststore.location={authority}"


def _lines(lines: Iterator[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def write_private(path: Path, data: bytes) -> None:
    """Whole or not at all, also if the power fails, and at no moment for others to read."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    RealDisk().sync_folder(str(path.parent))


def names_of(endpoints: list[Endpoint]) -> frozenset[str]:
    """The names by which clients may reach it: what listeners and this machine are called."""
    found = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    for endpoint in endpoints:
        found.add(endpoint.advertised_host or "")
        if endpoint.host not in WILDCARDS:
            found.add(endpoint.host)
        else:
            found |= _addresses()
    return frozenset(_as_certificates_have_it(name.partition("%")[0]) for name in found if _is_name(name))


def _as_certificates_have_it(name: str) -> str:
    """Of an address they keep the bytes: another spelling of it would never be found in one."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _is_name(name: str) -> bool:
    return bool(name) and name.isascii() and len(name) <= 253


def _addresses() -> set[str]:
    """The addresses of this machine, as far as it tells without being asked about each device."""
    found: set[str] = set()
    try:
        found |= {str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        pass  # its name is not known to anybody
    for family, elsewhere in ((socket.AF_INET, ELSEWHERE), (socket.AF_INET6, ELSEWHERE_6)):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(elsewhere)
                found.add(str(probe.getsockname()[0]))
        except OSError:
            pass  # no way leads out by that family
    return found
