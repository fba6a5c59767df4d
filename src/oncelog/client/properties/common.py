"""Properties of every client: the address of the cluster, how to speak to it, and how to log in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client.properties.addresses import Address, parse_servers
from oncelog.clock import DAY_MS, HOUR_MS
from oncelog.settings import INT_MAX
from oncelog.settings.declaring import boolean, callback, choice, integer, text

# Who takes a property: one of these, or every client.
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    # The cluster
    bootstrap_servers: tuple[Address, ...] = text(
        (),
        "The brokers to ask first, as host:port with commas between; port 9092 when left out.",
        convert=parse_servers,
        name="metadata.broker.list",
        aliases=("bootstrap.servers",),
    )
    client_id: str = text("oncelog", "What this client calls itself. librdkafka's default is `rdkafka`.")
    client_rack: str | None = text(None, "The rack of this client, for reading from the nearest replica.")
    allow_auto_create_topics: bool = boolean(
        False, "Whether asking about an unknown topic may create it; producers set it when it is not given."
    )
    topic_metadata_refresh_interval_ms: int = integer(
        300_000, "How often brokers and topics are asked about; -1 for never.", -1, HOUR_MS
    )
    topic_metadata_propagation_max_ms: int = integer(
        30_000, "A topic that is not there is waited for this long, since a new one takes time to be known.", 0, HOUR_MS
    )
    metadata_max_age_ms: int = integer(
        900_000, "What is known of a topic is forgotten after this time; three refreshes when not given.", 1, DAY_MS
    )
    metadata_recovery_strategy: str = choice(
        "rebootstrap", "Whether the bootstrap servers are asked again when no broker answers.", ("none", "rebootstrap")
    )
    metadata_recovery_rebootstrap_trigger_ms: int = integer(
        300_000, "They are also asked again after this time without metadata.", 0, INT_MAX
    )

    # Requests and connections
    message_max_bytes: int = integer(
        1_000_000, "Size of the largest request that is sent; a larger record is refused.", 1000, 1_000_000_000
    )
    receive_message_max_bytes: int = integer(
        100_000_000,
        "Size of the largest answer that is taken; raised to fetch.max.bytes + 512 when not given.",
        1000,
        INT_MAX,
    )
    max_in_flight: int = integer(
        1_000_000,
        "Requests that may be under way on a connection; 5 with enable.idempotence.",
        1,
        1_000_000,
        name="max.in.flight.requests.per.connection",
        aliases=("max.in.flight",),
    )
    socket_timeout_ms: int = integer(60_000, "How long an answer is waited for.", 10, 300_000)
    socket_connection_setup_timeout_ms: int = integer(
        30_000, "How long a connection may take, TLS and SASL included.", 1000, INT_MAX
    )
    socket_send_buffer_bytes: int = integer(0, "SO_SNDBUF; 0 leaves it to the system.", 0, 100_000_000)
    socket_receive_buffer_bytes: int = integer(0, "SO_RCVBUF; 0 leaves it to the system.", 0, 100_000_000)
    socket_keepalive_enable: bool = boolean(False, "SO_KEEPALIVE.")
    socket_nagle_disable: bool = boolean(True, "TCP_NODELAY.")
    broker_address_family: str = choice("any", "Which addresses of a broker are tried.", ("any", "v4", "v6"))
    connections_max_idle_ms: int = integer(
        0, "A connection without traffic is closed after this; 0: never.", 0, INT_MAX
    )
    reconnect_backoff_ms: int = integer(
        100, "The first pause before connecting again; it doubles, with -25 % to +50 % of chance.", 0, HOUR_MS
    )
    reconnect_backoff_max_ms: int = integer(10_000, "The longest such pause.", 0, HOUR_MS)
    retry_backoff_ms: int = integer(
        100, "The first pause before a request is sent again; it doubles, with 20 % of chance.", 1, 300_000
    )
    retry_backoff_max_ms: int = integer(1000, "The longest such pause.", 1, 300_000)

    # TLS
    security_protocol: str = choice(
        "plaintext",
        "Whether connections are encrypted (`ssl`) and prove who they are (`sasl`).",
        ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    )
    ssl_ca_location: str | None = text(
        None, "File or folder of the certificate authorities that are trusted; the system's when not given."
    )
    ssl_ca_pem: str | None = text(None, "The same as a PEM text.")
    ssl_certificate_location: str | None = text(None, "File of the client's own certificate (PEM).")
    ssl_certificate_pem: str | None = text(None, "The same as a PEM text.")
    ssl_key_location: str | None = text(None, "File of the client's private key (PEM).")
    ssl_key_pem: str | None = text(None, "The same as a PEM text.", is_secret=True)
    ssl_key_password: str | None = text(None, "The passphrase of that key.", is_secret=True)
    ssl_crl_location: str | None = text(None, "File of revoked certificates (PEM).")
    ssl_cipher_suites: str | None = text(None, "Ciphers up to TLS 1.2, as OpenSSL writes them.")
    enable_ssl_certificate_verification: bool = boolean(True, "Whether the broker's certificate is checked at all.")
    ssl_endpoint_identification_algorithm: str = choice(
        "https", "Whether it must bear the name that was connected to.", ("none", "https")
    )

    # SASL
    sasl_mechanism: str = text(
        "GSSAPI",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. The default is librdkafka's and not spoken here, so with "
        "`sasl` it must be given.",
        name="sasl.mechanisms",
        aliases=("sasl.mechanism",),
        is_one_word=True,
    )
    sasl_username: str | None = text(None, "For PLAIN and SCRAM.")
    sasl_password: str | None = text(None, "For PLAIN and SCRAM.", is_secret=True)
    oauth_cb: Callable[[str], Any] | None = callback(
        "For OAUTHBEARER: called with sasl.oauthbearer.config, answers (token, expiry in seconds of the epoch) and, "
        "where wanted, a principal and a mapping of extensions."
    )
    enable_sasl_oauthbearer_unsecure_jwt: bool = boolean(
        False, "For OAUTHBEARER in tests: an unsigned token is made from sasl.oauthbearer.config."
    )
    sasl_oauthbearer_config: str | None = text(
        None, "For oauth_cb, or `principal=... scope=... lifeSeconds=...` for the unsigned token."
    )
    sasl_oauthbearer_method: str = choice(
        "default", "`oidc` fetches tokens from sasl.oauthbearer.token.endpoint.url.", ("default", "oidc")
    )
    sasl_oauthbearer_client_id: str | None = text(
        None, "For `oidc`: who asks for the token.", aliases=("sasl.oauthbearer.client.credentials.client.id",)
    )
    sasl_oauthbearer_client_secret: str | None = text(
        None, "For `oidc`: its secret.", aliases=("sasl.oauthbearer.client.credentials.client.secret",), is_secret=True
    )
    sasl_oauthbearer_scope: str | None = text(None, "For `oidc`: the scope that is asked for.")
    sasl_oauthbearer_extensions: str | None = text(None, "For `oidc`: `name=value` pairs for the broker, with commas.")
    sasl_oauthbearer_token_endpoint_url: str | None = text(None, "For `oidc`: where tokens come from.")
    sasl_oauthbearer_sub_claim_name: str = text("sub", "For `oidc`: the claim that names the principal.")
    https_ca_location: str | None = text(None, "For `oidc`: the authorities that are trusted there.")
    https_ca_pem: str | None = text(None, "The same as a PEM text.")

    # What is told to the application
    error_cb: Callable[..., Any] | None = callback("Called with a KafkaError that belongs to no one call.")
    statistics_interval_ms: int = integer(0, "How often `stats_cb` is called; 0 for never.", 0, DAY_MS)
    stats_cb: Callable[[str], Any] | None = callback(
        "Called with statistics as a JSON text, from `poll` and the like (client-statistics.md); an admin has none."
    )
    logger: Any = None

    given: frozenset[str] = frozenset()  # names of the properties that were set explicitly

    def is_given(self, name: str) -> bool:
        """Whether a property, by librdkafka's own name, was set rather than left to its default."""
        return name in self.given


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    """An admin client takes what every client takes."""
