"""To whom what is served beside the log is open, the page and the metrics, and what it therefore asks for: that people
sign in, and TLS.

On the loopback address it is as open as the log itself: where listeners ask nobody who they are, neither does it.
Beyond it, it is never there without both.
"""

from typing import Final

from oncelog.metrics.hosts import is_loopback
from oncelog.server.broker import Broker
from oncelog.server.endpoints import Endpoint
from oncelog.server.listener_settings import client_auth
from oncelog.server.tls import Tls
from oncelog.settings import SettingsError

HOW: Final = "`oncelog serve --secure` makes a certificate and a user"


class Exposure:
    def __init__(
        self,
        broker: Broker,
        host: str,
        *,
        what: str,
        given: str,
        listener: str,
        sign_in: tuple[str, str],
        tls_word: str,
    ) -> None:
        """`given` is how somebody has said where it is to be, `listener` the name by which settings and the server's
        log know it, `sign_in` a setting and its value."""
        self.what = what
        self._broker = broker
        self._is_near = is_loopback(host)
        self._given = given
        self._endpoint = Endpoint(listener, "SASL_SSL", host, 0)  # asks for no client certificate
        self._sign_in_setting, self._sign_in = sign_in
        self._tls_word = tls_word

    @property
    def asks_to_sign_in(self) -> bool:
        if not self._is_near or self._sign_in == "always":
            return True
        if self._sign_in == "never":
            return False
        broker = self._broker
        return bool(broker.settings.authorizer_class_name) or any(map(self._asks_who, broker.endpoints))

    def _asks_who(self, endpoint: Endpoint) -> bool:
        """A certificate, or by SASL. People who have shown a certificate there have no password of that name, and must
        get one: what nobody reads there without must not be read here."""
        auth = client_auth(self._broker.settings, endpoint.name, endpoint.protocol)
        return endpoint.is_sasl or (endpoint.is_encrypted and auth == "required")

    def tls(self) -> Tls | None:
        """None where it speaks without. Raises SettingsError, which says what to do."""
        settings = self._broker.settings
        if self._is_near and self._tls_word != "always":
            return None
        if settings.ssl_keystore_location is None and settings.ssl_keystore_certificate_chain is None:
            raise SettingsError(
                f"{self._given}: {self.what} would be read by everybody on the way: give it a "
                "certificate, ssl.keystore.location or ssl.keystore.certificate.chain and ssl.keystore.key, or leave "
                f"it on 127.0.0.1. {HOW}"
            )
        return Tls(self._endpoint, settings, self._broker.clock)

    def check_users(self, *, takes_tokens: bool = False) -> None:
        """Raises SettingsError where nobody could sign in, beyond the loopback address."""
        if self._is_near:
            return
        if self._sign_in == "never":
            raise SettingsError(
                f"{self._given}: {self._sign_in_setting}=never is for 127.0.0.1 alone: everybody who "
                "reaches this address would read everything"
            )
        if not takes_tokens and not self._broker.users.now.names:
            raise SettingsError(
                f"{self._given}: nobody could sign in, since there are no users: make one with "
                f"`oncelog users add NAME`, or leave {self.what} on 127.0.0.1. {HOW}"
            )
