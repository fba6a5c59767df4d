"""TLS as the `ssl.*` properties ask for it, and its failures in words that say what to do."""

import os
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, invalid_argument

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

T = TypeVar("T")

_HOSTNAME_MISMATCH = 62  # X509_V_ERR_HOSTNAME_MISMATCH
_IP_MISMATCH = 64
_EXPIRED = 10

CHECK_CA = "is `ssl.ca.location` the authority that signed it?"
WANTS_CERTIFICATE = "; does it want `ssl.certificate.location`, signed by an authority that the broker trusts?"


def tls_context(settings: "ClientSettings") -> ssl.SSLContext | None:
    """None where connections are not encrypted. Files that cannot be used are told at once, not by a connection."""
    if "ssl" not in settings.security_protocol:
        return None
    context = _trusting(settings)
    # As librdkafka: an authority's certificate may be older than the rules of RFC 5280.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.ssl_crl_location:
        revoked = settings.ssl_crl_location
        _load("ssl.crl.location", revoked, lambda: context.load_verify_locations(revoked))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if settings.ssl_cipher_suites:
        ciphers = settings.ssl_cipher_suites
        _load("ssl.cipher.suites", ciphers, lambda: context.set_ciphers(ciphers))
    _load_own_certificate(context, settings)
    if settings.ssl_endpoint_identification_algorithm == "none":
        context.check_hostname = False
    if not settings.enable_ssl_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _trusting(settings: "ClientSettings") -> ssl.SSLContext:
    """A context that trusts the authorities that are named, or the system's where none is."""
    location, pem = settings.ssl_ca_location, settings.ssl_ca_pem
    name = "ssl.ca.location" if location else "ssl.ca.pem"
    if location and os.path.isdir(location):
        return ssl.create_default_context(capath=location, cadata=pem)
    return _load(name, location or "the text", lambda: ssl.create_default_context(cafile=location, cadata=pem))


def _load_own_certificate(context: ssl.SSLContext, settings: "ClientSettings") -> None:
    """OpenSSL reads the client's certificate and key from files only, so texts become files for that moment."""
    texts: list[str] = []
    try:
        certificate = settings.ssl_certificate_location or _as_file(settings.ssl_certificate_pem, texts)
        key = settings.ssl_key_location or _as_file(settings.ssl_key_pem, texts)
        if certificate is None:
            if key is not None:
                raise invalid_argument(
                    "`ssl.key.location` or `ssl.key.pem` says nothing without `ssl.certificate.location`"
                )
            return
        if key is None and settings.ssl_certificate_location and not _has_key(settings.ssl_certificate_location):
            raise invalid_argument(
                f"`ssl.certificate.location`: {certificate} has no key in it; give one by `ssl.key.location`"
            )
        name = "ssl.key.location" if key else "ssl.certificate.location"
        password = settings.ssl_key_password or ""
        _load(name, key or certificate, lambda: context.load_cert_chain(certificate, key, lambda: password))
    finally:
        for path in texts:
            os.unlink(path)


def _has_key(path: str) -> bool:
    """Whether the file has a key. True where it cannot be read: that is told when it is loaded."""
    with suppress(OSError):
        return b"PRIVATE KEY-----" in Path(path).read_bytes()
    return True


def _as_file(pem: str | None, made: list[str]) -> str | None:
    if pem is None:
        return None
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable for this user alone
    made.append(path)
    with open(descriptor, "w") as file:
        file.write(pem)
    return path


def _load(name: str, value: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except FileNotFoundError:
        raise invalid_argument(f"`{name}`: there is no file {value}") from None
    except ssl.SSLError as error:
        hint = "; is `ssl.key.password` right?" if name == "ssl.key.location" else ""
        raise invalid_argument(f"`{name}`: {value} cannot be used: {_reason(error)}{hint}") from None
    except OSError as error:
        raise invalid_argument(f"`{name}`: {value} cannot be read: {error.strerror or error}") from None


def tls_failure(endpoint: object, error: BaseException) -> KafkaException:
    """The error for a handshake that failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _failed(endpoint, f"the broker's certificate is refused: {_why_refused(error)}", retriable=False)
    if isinstance(error, ssl.SSLError):
        return _failed(endpoint, _why_broken(error), retriable=False)
    why = "the broker closed the connection during the TLS handshake: is it a listener without TLS?"
    return _failed(endpoint, why, retriable=True)


def _failed(endpoint: object, why: str, *, retriable: bool) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._SSL, f"{endpoint}: {why}", retriable=retriable))


def _why_refused(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (_HOSTNAME_MISMATCH, _IP_MISMATCH):
        return (
            f"{error.verify_message} Connect to a name that it bears, or give up the check with "
            "`ssl.endpoint.identification.algorithm=none`"
        )
    if error.verify_code == _EXPIRED:
        return f"{error.verify_message}: renew it, or look at the clock of this machine"
    return f"{error.verify_message}: {CHECK_CA}"


def _why_broken(error: ssl.SSLError) -> str:
    reason = _reason(error)
    if "wrong version number" in reason or "record layer failure" in reason or "http request" in reason:
        return "the broker answers without TLS: is it a plaintext listener? (`security.protocol`)"
    if "certificate required" in reason or "bad certificate" in reason or "handshake failure" in reason:
        return f"the broker refuses this client ({reason}){WANTS_CERTIFICATE}"
    return f"TLS failed: {reason}"


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's word for it; an error that Python itself made has none."""
    return (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
