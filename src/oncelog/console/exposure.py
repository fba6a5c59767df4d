"""To whom the page is open, and what it therefore asks for: that people sign in, and TLS.

On the loopback address it is as open as the log itself: where listeners ask nobody who they are, neither does the page.
Beyond it, it is never there without both.
"""

from ipaddress import ip_address
from typing import Final

from oncelog.server.broker import Broker, bracketed
from oncelog.server.endpoints import Endpoint
from oncelog.server.settings import Settings
from oncelog.server.tls import Tls
from oncelog.settings import SettingsError

LISTENER: Final = "CONSOLE"  # by which settings and the server's log name it
HOW: Final = "`oncelog serve --secure` makes a certificate and a user"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def asks_to_sign_in(host: str, settings: Settings, endpoints: list[Endpoint]) -> bool:
    if not is_loopback(host) or settings.oncelog_console_sign_in == "always":
        return True
    if settings.oncelog_console_sign_in == "never":
        return False
    return bool(settings.authorizer_class_name) or any(each.is_sasl for each in endpoints)


def speaks_tls(host: str, settings: Settings) -> bool:
    return not is_loopback(host) or settings.oncelog_console_tls == "always"


def tls_of_page(host: str, port: int, broker: Broker) -> Tls | None:
    """None where it speaks without. Raises SettingsError, which says what to do."""
    settings = broker.settings
    if not speaks_tls(host, settings):
        return None
    if settings.ssl_keystore_location is None and settings.ssl_keystore_certificate_chain is None:
        raise SettingsError(
            f"--console {bracketed(host)}:{port}: the page would be read by everybody on the way: give it a "
            "certificate, ssl.keystore.location or ssl.keystore.certificate.chain and ssl.keystore.key, or leave it on "
            f"127.0.0.1. {HOW}"
        )
    return Tls(Endpoint(LISTENER, "SASL_SSL", host, port), settings, broker.clock)  # asks for no client certificate


def check_users(host: str, port: int, broker: Broker) -> None:
    """Raises SettingsError where nobody could sign in, beyond the loopback address."""
    if is_loopback(host):
        return
    if broker.settings.oncelog_console_sign_in == "never":
        raise SettingsError(
            f"--console {bracketed(host)}:{port}: oncelog.console.sign.in=never is for 127.0.0.1 alone: everybody who "
            "reaches this address would read everything"
        )
    if not broker.users.now.names:
        raise SettingsError(
            f"--console {bracketed(host)}:{port}: nobody could sign in, since there are no users: make one with "
            f"`oncelog users add NAME`, or leave the page on 127.0.0.1. {HOW}"
        )
