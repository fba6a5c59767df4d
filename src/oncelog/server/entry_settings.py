"""Settings about how a server is reached: who it is, where it listens, who gets in, and what they may do.

A part of the table in `settings.py`, which says how settings are written.
"""

from dataclasses import dataclass

from oncelog.clock import HOUR_MS
from oncelog.settings.declaring import boolean, integer, long, text, texts


@dataclass(slots=True, kw_only=True)
class EntrySettings:
    # Who it is and where it listens
    oncelog_cluster: str | None = text(
        None,
        "Where brokers of a cluster agree, such as zk://a:2181,b:2181,c:2181/oncelog; without it there is one.",
    )
    oncelog_cluster_folder_lost: bool = boolean(
        False, "The folder that this broker had is gone: it lacks everything, and copies it from the others."
    )
    zookeeper_ssl_client_enable: bool = boolean(False, "Whether the broker speaks TLS to ZooKeeper.")
    zookeeper_ssl_truststore_location: str | None = text(
        None, "A PEM file with the certificates that ZooKeeper's must come from; the system's when not set."
    )
    zookeeper_ssl_keystore_location: str | None = text(
        None, "A PEM file with the certificate and the key that the broker shows to ZooKeeper."
    )
    zookeeper_ssl_keystore_password: str | None = text(None, "The password of that key.", is_secret=True)
    zookeeper_ssl_endpoint_identification_algorithm: str = text(
        "https", "Whether ZooKeeper's certificate must name its host: https, or empty for no.", words=("https", "")
    )
    zookeeper_set_acl: bool = boolean(
        False, "Whether what brokers agree on may be read and changed by their own user alone."
    )
    oncelog_zookeeper_username: str | None = text(None, "The user that the broker is to ZooKeeper (digest).")
    oncelog_zookeeper_password: str | None = text(None, "Its password.", is_secret=True)
    broker_rack: str | None = text(None, "Where this broker stands, for clients that want to know.")
    node_id: int = integer(1, "The number of this node, unique in its cluster.")
    broker_id: int | None = integer(None, "Another name of node.id.")
    listeners: tuple[str, ...] = texts(
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen, as NAME://HOST:PORT. Kafka's default listens on every interface; without access rules that "
        "is a choice to make, so the default here is this machine only. Port 0 picks a free one.",
    )
    advertised_listeners: tuple[str, ...] | None = texts(
        None, "Addresses that clients are told to connect to, by listener name; the listeners themselves when not set."
    )
    listener_security_protocol_map: tuple[str, ...] = texts(
        (), "NAME:PROTOCOL for listeners with names of their own: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
    )
    inter_broker_listener_name: str | None = text(
        None, "The listener by which brokers of a cluster reach each other; the first one when not set."
    )
    log_dir: str = text("oncelog-data", "The data folder. It is created on the first start.")
    log_dirs: tuple[str, ...] | None = texts(None, "Another name of log.dir; one folder.")

    # Who gets in: TLS
    oncelog_secure: bool = boolean(
        False,
        "Make a certificate, a user and the files by which it gets in, once, in the data folder; listen with TLS and "
        "passwords, and let nobody else do anything. Settings that are given for this go before it.",
    )
    ssl_keystore_type: str = text("PEM", "How certificate and key are written.", words=("PEM",))
    ssl_keystore_location: str | None = text(
        None, "A file with this server's key and its certificates, its own first. It is read again when it changes."
    )
    ssl_keystore_certificate_chain: str | None = text(
        None, "The certificates themselves, its own first, in the place of ssl.keystore.location."
    )
    ssl_keystore_key: str | None = text(None, "The key that belongs to them.", is_secret=True)
    ssl_key_password: str | None = text(None, "The password of the key.", is_secret=True)
    ssl_truststore_type: str = text("PEM", "How the certificates are written that are trusted.", words=("PEM",))
    ssl_truststore_location: str | None = text(
        None,
        "A file with the certificates that clients' certificates must come from. It is read again when it changes.",
    )
    ssl_truststore_certificates: str | None = text(
        None, "The certificates themselves, in the place of ssl.truststore.location."
    )
    ssl_client_auth: str = text(
        "none",
        "Whether clients show a certificate: none, requested (they may) or required.",
        words=("none", "requested", "required"),
    )
    ssl_endpoint_identification_algorithm: str = text(
        "https",
        "Whether the certificate of another broker must name its host: https, or empty for no.",
        words=("https", ""),
    )
    ssl_principal_mapping_rules: str = text(
        "DEFAULT", "How the name in a client's certificate becomes a user's name, as Kafka's RULE:pattern/replacement/."
    )
    ssl_enabled_protocols: tuple[str, ...] = texts(
        ("TLSv1.2", "TLSv1.3"), "Versions of TLS.", words=("TLSv1.2", "TLSv1.3")
    )
    ssl_cipher_suites: tuple[str, ...] | None = texts(
        None, "Ciphers of TLS 1.2, by OpenSSL's names; OpenSSL's own choice when not set."
    )

    # Who gets in: SASL
    sasl_enabled_mechanisms: tuple[str, ...] = texts(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "The SASL mechanisms that clients may log in by. Kafka's default, GSSAPI, is not there.",
        words=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"),
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = text(
        None, "Where the keys are that tokens are signed with: https://..., or file:///... of a JWKS."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(HOUR_MS, "How often these keys are read again.", low=1000)
    sasl_oauthbearer_expected_issuer: str | None = text(None, "The issuer that a token must have.")
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = texts(
        None, "The audiences of which a token must have one."
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(30, "By how much the clock of the issuer may differ.")
    sasl_oauthbearer_sub_claim_name: str = text("sub", "The claim that names the user.")
    sasl_oauthbearer_scope_claim_name: str = text("scope", "The claim that names scopes.")
    connections_max_reauth_ms: int = long(
        0, "How long a proof of who somebody is lasts on a connection, which must then be given again; 0 for ever."
    )
    sasl_server_max_receive_size: int = integer(
        32_768,
        "Largest message of a client that has not proven yet who it is. Kafka's 524288 would let strangers make the "
        "server hold much.",
        low=512,
        high=65_000,
    )
    oncelog_sasl_without_tls: bool = boolean(
        False,
        "Whether PLAIN and OAUTHBEARER may be used on SASL_PLAINTEXT, where everybody on the way can read passwords "
        "and tokens.",
    )
    oncelog_max_failed_authentications_per_minute: int = integer(
        300, "After this many failed proofs no more of the same host are looked at for a while; 0 for no limit.", low=0
    )
    connection_failed_authentication_delay_ms: int = integer(
        100, "How long the answer to a failed proof takes, so that guessing is slow.", high=10_000
    )

    # What they may do
    authorizer_class_name: str = text(
        "",
        "Whether access rules are asked: empty for no, any of Kafka's names for yes.",
        words=(
            "",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "kafka.security.authorizer.AclAuthorizer",
        ),
    )
    super_users: str = text("", "The principals that may do everything, as User:name;User:other.")
    allow_everyone_if_no_acl_found: bool = boolean(False, "Whether everybody may do what no rule is about.")
    quota_window_num: int = integer(11, "Of how many windows a rate is the mean.", low=1, high=100)
    quota_window_size_seconds: int = integer(1, "How long each of them lasts.", low=1, high=3600)
