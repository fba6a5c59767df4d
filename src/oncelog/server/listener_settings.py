"""Errors in the settings of listeners, as far as settings alone tell: no file is looked into here."""

from collections.abc import Iterator, Mapping

from oncelog.security.principal_mapping import BadRules, PrincipalMapping
from oncelog.server.settings import Settings


def listener_conflicts(settings: Settings, protocols: Mapping[str, str]) -> list[str]:
    """`protocols`: of each listener."""
    found: list[str] = []
    for listener in settings.by_listener:
        if listener not in protocols:
            found.append(
                f"listener.name.{listener.lower()}: listeners names no {listener}, but {', '.join(sorted(protocols))}"
            )
    for listener, protocol in protocols.items():
        if protocol in ("SSL", "SASL_SSL"):
            own = settings.of_listener(listener)
            found += _of_encrypted(f"{listener}: ", own, client_auth(settings, listener, protocol))
    return list(dict.fromkeys(found))


def client_auth(settings: Settings, listener: str, protocol: str) -> str:
    """The setting as Kafka has it (KIP-684): where clients say by SASL who they are, a certificate is asked for only by
    that listener's own setting."""
    if protocol == "SASL_SSL" and "ssl_client_auth" not in settings.by_listener.get(listener, {}):
        return "none"
    return settings.of_listener(listener).ssl_client_auth


def _of_encrypted(where: str, settings: Settings, client_auth: str) -> Iterator[str]:
    is_in_file = settings.ssl_keystore_location is not None
    chain, key = settings.ssl_keystore_certificate_chain, settings.ssl_keystore_key
    if not is_in_file and chain is None:
        yield (
            f"{where}a listener with TLS needs a certificate: ssl.keystore.location, a file of PEM, or "
            "ssl.keystore.certificate.chain and ssl.keystore.key. `oncelog serve --secure` makes one"
        )
    elif not is_in_file and key is None:
        yield f"{where}ssl.keystore.certificate.chain needs ssl.keystore.key"
    if is_in_file and (chain is not None or key is not None):
        yield f"{where}ssl.keystore.location and ssl.keystore.certificate.chain or .key: give one of them"
    if settings.ssl_truststore_location is not None and settings.ssl_truststore_certificates is not None:
        yield f"{where}ssl.truststore.location and ssl.truststore.certificates: give one of them"
    is_trusting = settings.ssl_truststore_location is not None or settings.ssl_truststore_certificates is not None
    if client_auth != "none" and not is_trusting:
        yield (
            f"{where}ssl.client.auth={client_auth} needs to know which authorities clients' certificates "
            "come from: ssl.truststore.location or ssl.truststore.certificates"
        )
    if not settings.ssl_enabled_protocols:
        yield f"{where}ssl.enabled.protocols is empty: expected TLSv1.2, TLSv1.3 or both"
    try:
        PrincipalMapping(settings.ssl_principal_mapping_rules)
    except BadRules as bad:
        yield f"{where}ssl.principal.mapping.rules: {bad}"
