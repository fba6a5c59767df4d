"""TLS of a listener, made of its settings: OpenSSL's context, and warnings for a person.

OpenSSL reads a chain and its key from files alone. They go there by a file in memory where the system has such, or by
one that only this user may read, for that moment.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from oncelog.clock import DAY_MS, HOUR_MS
from oncelog.security.certificates import BadCertificate, Certificate, read_certificate
from oncelog.security.pem import MOST_CHARACTERS, Block, Unreadable, blocks
from oncelog.server.settings import Settings
from oncelog.settings import SettingsError

SOON_MS: Final = 14 * DAY_MS  # a program that renews certificates does so sooner
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

KEYSTORE: Final = "ssl.keystore.location"
CHAIN: Final = "ssl.keystore.certificate.chain"
KEY: Final = "ssl.keystore.key"
TRUSTSTORE: Final = "ssl.truststore.location"
TRUSTED: Final = "ssl.truststore.certificates"


@dataclass(frozen=True, slots=True)
class TlsContext:
    context: ssl.SSLContext
    certificate: Certificate  # the server's own

    def warnings(self, now_ms: int) -> Iterator[str]:
        ends_ms, begins_ms = self.certificate.ends_ms, self.certificate.begins_ms
        if now_ms >= ends_ms:
            yield f"the certificate of {self.certificate.subject} is over since {_days(now_ms - ends_ms)}: renew it"
        elif now_ms < begins_ms:
            yield (
                f"the certificate of {self.certificate.subject} begins in {_days(begins_ms - now_ms)}: is this "
                "machine's clock right?"
            )
        elif ends_ms - now_ms < SOON_MS:
            yield f"the certificate of {self.certificate.subject} ends in {_days(ends_ms - now_ms)}: renew it"


def _days(ms: int) -> str:
    return f"{ms // DAY_MS} days" if ms >= 2 * DAY_MS else f"{ms // HOUR_MS} hours"


def make_context(listener: str, settings: Settings, client_auth: str) -> TlsContext:
    """`settings` as they count for the listener. Raises SettingsError, which tells the setting and never a key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[each] for each in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # Sessions are not taken up again: what is renewed or no longer trusted counts at once.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if settings.ssl_cipher_suites:
        _set_ciphers(listener, context, settings.ssl_cipher_suites)
    chain = _load_chain(listener, context, settings)
    _load_trusted(listener, context, settings)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    # As Java: what stands in the truststore is trusted, whether or not somebody else has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return TlsContext(context, _certificate(listener, chain[0]))


def make_peer_context(listener: str, settings: Settings) -> ssl.SSLContext:
    """A context by which a broker reaches others at that listener of theirs: it shows the certificate that it serves
    with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[each] for each in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_chain(listener, context, settings)
    _load_trusted(listener, context, settings)
    return context


def watched_files(settings: Settings) -> tuple[str, ...]:
    """The files that are looked at again while the server runs."""
    return tuple(each for each in (settings.ssl_keystore_location, settings.ssl_truststore_location) if each)


def _load_chain(listener: str, context: ssl.SSLContext, settings: Settings) -> list[Block]:
    location = settings.ssl_keystore_location
    if location is not None:
        named = KEYSTORE
        found = _blocks(listener, named, _read(listener, named, location))
        chain, keys = [each for each in found if each.is_certificate], [each for each in found if each.is_key]
    else:
        named = CHAIN
        given = settings.ssl_keystore_certificate_chain or ""
        chain = [each for each in _blocks(listener, CHAIN, given) if each.is_certificate]
        keys = [each for each in _blocks(listener, KEY, settings.ssl_keystore_key or "") if each.is_key]
    where = f"{listener}: {named}" + (f"={location}" if location else "")
    if not chain:
        raise SettingsError(f"{where}: there is no certificate in it (-----BEGIN CERTIFICATE-----)")
    if len(keys) != 1:
        of = where if location else f"{listener}: {KEY}"
        raise SettingsError(f"{of}: expected one key (-----BEGIN PRIVATE KEY-----), found {len(keys)}")
    password = settings.ssl_key_password
    if keys[0].is_encrypted and not password:
        raise SettingsError(f"{where}: the key is encrypted; give its password as ssl.key.password")
    try:
        with _as_file([*chain, *keys]) as path:
            context.load_cert_chain(path, password=password or "")
    except ssl.SSLError as error:
        raise SettingsError(f"{where}: {_why_not_loaded(error, keys[0])}") from None
    except OSError as error:
        raise SettingsError(f"{where}: it cannot be handed to OpenSSL: {error.strerror or error}") from None
    except ValueError:
        raise SettingsError(f"{where}: ssl.key.password is longer than OpenSSL takes") from None
    return chain


def _why_not_loaded(error: ssl.SSLError, key: Block) -> str:
    reason = (error.reason or "").upper()
    if "KEY_VALUES_MISMATCH" in reason or "KEY_TYPE_MISMATCH" in reason:
        return "the key does not belong to the first certificate; the server's own stands before those that signed it"
    if key.is_encrypted and ("BAD_DECRYPT" in reason or "CIPHER" in reason or not reason):
        return "the key cannot be decrypted: is ssl.key.password right?"
    if "EE_KEY_TOO_SMALL" in reason or "MD_TOO_WEAK" in reason:
        return f"OpenSSL takes it for too weak ({reason.lower()}): make a key of at least 2048 bits"
    return f"OpenSSL cannot use it: {reason.lower().replace('_', ' ') or 'no certificate and key that it knows'}"


def _load_trusted(listener: str, context: ssl.SSLContext, settings: Settings) -> None:
    location, text = settings.ssl_truststore_location, settings.ssl_truststore_certificates
    named = TRUSTED
    if location is not None:
        named = TRUSTSTORE
        text = _read(listener, named, location)
    if text is None:
        return
    certificates = [each for each in _blocks(listener, named, text) if each.is_certificate]
    where = f"{listener}: {named}" + (f"={location}" if location else "")
    if not certificates:
        raise SettingsError(f"{where}: there is no certificate in it (-----BEGIN CERTIFICATE-----)")
    try:
        context.load_verify_locations(cadata="".join(each.text for each in certificates))
    except ssl.SSLError as error:
        raise SettingsError(f"{where}: OpenSSL cannot use it: {(error.reason or '').lower()}") from None


def _certificate(listener: str, block: Block) -> Certificate:
    try:
        return read_certificate(block.der)
    except (BadCertificate, Unreadable) as bad:
        raise SettingsError(f"{listener}: the server's certificate cannot be read: {bad}") from None


def _blocks(listener: str, setting: str, text: str) -> list[Block]:
    try:
        return list(blocks(text))
    except Unreadable as bad:
        raise SettingsError(f"{listener}: {setting}: {bad}") from None


def _read(listener: str, setting: str, path: str) -> str:
    where = f"{listener}: {setting}={path}"
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise SettingsError(f"{where}: it cannot be read: {error.strerror or error}") from None
    if b"-----BEGIN " not in data:
        if data[:4] == b"\xfe\xed\xfe\xed" or data[:2] == b"\x30\x82":
            raise SettingsError(
                f"{where}: that is a keystore of Java's, and PEM is needed: "
                "openssl pkcs12 -in keystore.p12 -out keystore.pem"
            )
        raise SettingsError(f"{where}: there is no PEM in it (-----BEGIN CERTIFICATE-----)")
    return data.decode("utf-8", "replace")


@contextmanager
def _as_file(all_blocks: Sequence[Block]) -> Iterator[str]:
    data = "".join(each.text for each in all_blocks).encode()
    if hasattr(os, "memfd_create") and os.path.exists("/proc/self/fd"):
        descriptor = os.memfd_create("oncelog-tls", os.MFD_CLOEXEC)
        with open(descriptor, "wb", buffering=0) as memory:
            memory.write(data)
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # readable for this user alone
        file.write(data)
        file.flush()
        yield file.name


def _set_ciphers(listener: str, context: ssl.SSLContext, given: Sequence[str]) -> None:
    """Java's names are understood as well. Those of TLS 1.3 are OpenSSL's choice."""
    wanted = [_cipher(each) for each in given if not each.startswith(("TLS_AES_", "TLS_CHACHA20_"))]
    if not wanted:
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError:
        raise SettingsError(f"{listener}: ssl.cipher.suites={','.join(given)}: OpenSSL knows none of them") from None


def _cipher(name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    if not name.startswith("TLS_") or "_WITH_" not in name:
        return name
    exchange, _, rest = name.removeprefix("TLS_").partition("_WITH_")
    rest = (
        rest.replace("AES_128", "AES128")
        .replace("AES_256", "AES256")
        .removesuffix("_SHA256" if "CHACHA" in rest else "")
    )
    rest = rest.replace("_CBC", "").replace("_", "-")
    return rest if exchange == "RSA" else f"{exchange.replace('_', '-')}-{rest}"
