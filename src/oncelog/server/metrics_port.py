"""The port at which this server's metrics are scraped: who may, and what they see.

Who has to say who it is does so by HTTP Basic, as every scraper can, and is a user of the log; or by a token, where a
listener takes those (OAUTHBEARER). It takes the right to DESCRIBE the cluster, as the overview of the page does; of
topics and groups those are told that the user may DESCRIBE.
"""

from base64 import b64decode
from binascii import Error as BadBase64
from http import HTTPStatus
from typing import Final

from oncelog.metrics.http import MAX_OPEN, MetricsServer, Refusal, Refused, Text
from oncelog.security.hosts import place_of
from oncelog.security.oauthbearer import token_in
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.broker import Broker, bracketed
from oncelog.server.doorway import Doorway
from oncelog.server.exposition import exposition
from oncelog.server.exposure import Exposure
from oncelog.server.listener import address_refused
from oncelog.server.tls import LOOK_MS
from oncelog.server.web_proofs import Unproven, WebProofs

HANDSHAKES: Final = 2 * MAX_OPEN
ASKS: Final = 'WWW-Authenticate: Basic realm="oncelog", charset="UTF-8"'
ASKS_FOR_TOKENS: Final = f'{ASKS}\r\nWWW-Authenticate: Bearer realm="oncelog"'
SIGN_IN_FIRST: Final = "name a user of the log and the password (basic_auth of Prometheus)\n"
OR_A_TOKEN: Final = "or show a token (authorization or oauth2 of Prometheus)\n"
MAY_NOT: Final = (
    "this takes the right to DESCRIBE the cluster: "
    "oncelog acls add --allow-principal '{principal}' --operation Describe --cluster\n"
)


class MetricsPort:
    def __init__(self, broker: Broker, host: str, port: int) -> None:
        """Raises SettingsError, as `start` does."""
        self._broker = broker
        self._host, self.port = host, port
        settings = broker.settings
        self._exposure = Exposure(
            broker,
            host,
            what="/metrics",
            given=f"oncelog.metrics.listener={bracketed(host)}:{port}",
            listener="METRICS",
            sign_in=("oncelog.metrics.sign.in", settings.oncelog_metrics_sign_in),
            tls_word=settings.oncelog_metrics_tls,
        )
        tls = self._exposure.tls()
        self._doorway = None if tls is None else Doorway(broker, tls, self._exposure.what, HANDSHAKES)
        self._proofs = WebProofs(broker, self._exposure.what)
        self._tokens = broker.tokens.first()
        self._asks = ASKS if self._tokens is None else ASKS_FOR_TOKENS
        self._server = MetricsServer(
            lambda: exposition(broker),
            turns=broker.turns,
            own_names=broker.own_names,
            admit=self._admit if self._exposure.asks_to_sign_in else None,
            enter=None if self._doorway is None else self._doorway.enter,
            place_of=place_of,
        )

    async def start(self) -> None:
        self._exposure.check_users(takes_tokens=self._tokens is not None)
        try:
            self.port = await self._server.start(self._host, self.port)
        except OSError as error:
            raise address_refused("serve metrics", self._host, self.port, error) from error
        if self._doorway is not None:
            self._broker.housekeeping.every(LOOK_MS, self._doorway.look)

    async def stop(self) -> None:
        await self._server.stop()

    async def _admit(self, host: str, authorization: str | None) -> Text:
        if authorization is None:  # nothing was guessed: clients are asked before they say
            raise self._unsigned()
        try:
            user = await self._proven(host, authorization)
        except Unproven as unproven:
            status = f"{unproven.status} {HTTPStatus(unproven.status).phrase}"
            asks = self._asks if unproven.status == HTTPStatus.UNAUTHORIZED else None
            raise Refused(Refusal(status, f"{unproven.message}\n", asks)) from None
        principal = f"User:{user}"
        rights = self._broker.access.rights(principal, host)
        if not rights.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            raise Refused(Refusal("403 Forbidden", MAY_NOT.format(principal=principal)))
        return lambda: exposition(self._broker, rights)

    async def _proven(self, host: str, authorization: str) -> str:
        """The user that the request proves to be. Raises Refused and Unproven."""
        token = None if self._tokens is None else token_in(authorization)
        if token is not None and self._tokens is not None:
            return await self._proofs.of_token(host, self._tokens, token)
        shown = _name_and_password(authorization)
        if shown is None:
            raise self._unsigned()
        await self._proofs.of_password(host, *shown)
        return shown[0]

    def _unsigned(self) -> Refused:
        text = SIGN_IN_FIRST if self._tokens is None else f"{SIGN_IN_FIRST}{OR_A_TOKEN}"
        return Refused(Refusal("401 Unauthorized", text, self._asks))


def _name_and_password(authorization: str) -> tuple[str, str] | None:
    scheme, _, shown = authorization.partition(" ")
    try:
        user, colon, password = b64decode(shown.strip(), validate=True).decode().partition(":")
    except (BadBase64, ValueError):
        return None
    return (user, password) if scheme.lower() == "basic" and user and colon and password else None
