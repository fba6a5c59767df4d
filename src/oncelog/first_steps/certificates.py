"""An authority of one's own and a server's certificate that it signs, by the library `cryptography`."""

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
SERVER_DAYS: Final = 365
CLOCKS_DIFFER_DAYS: Final = 1  # a client's clock may be behind


class Unreadable(Exception):
    """Not what was made here once."""


class UnreadableAuthority(Unreadable):
    pass


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: bytes  # PEM, as both are
    key: bytes

    def __repr__(self) -> str:
        return "Pair()"


def make_authority(now_ms: int) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("oncelog authority")
    builder = (
        _begun(name, name, key.public_key(), now_ms, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def sign_server(authority: Pair, names: Iterable[str], now_ms: int) -> Pair:
    """`names`: hosts and addresses by which clients reach it. Raises UnreadableAuthority."""
    signer, signer_key = _read_authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    listed = sorted(set(names))
    builder = (
        _begun(_name("oncelog"), signer.subject, key.public_key(), now_ms, SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in listed]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
    )
    return _pair(builder.sign(signer_key, hashes.SHA256()), key)


def _read_authority(authority: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate)
        key = serialization.load_pem_private_key(authority.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: somebody has encrypted it
        raise UnreadableAuthority from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise UnreadableAuthority
    return certificate, key


def names_in(certificate: bytes) -> frozenset[str]:
    """Hosts and addresses that it is for. Raises Unreadable."""
    try:
        read = x509.load_pem_x509_certificate(certificate)
        found = read.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, x509.ExtensionNotFound):
        raise Unreadable from None
    hosts = found.value.get_values_for_type(x509.DNSName)
    addresses = found.value.get_values_for_type(x509.IPAddress)
    return frozenset((*hosts, *map(str, addresses)))


def ends_ms(certificate: bytes) -> int:
    return int(x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp() * 1000)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_ms: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=CLOCKS_DIFFER_DAYS))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
