"""librdkafka's properties that cannot be honoured here, and what is said to who sets one.

A value that asks for what happens anyway is let through, so that a configuration that spells out defaults works.
"""

from collections.abc import Mapping
from typing import Final

_EMPTY: Final = frozenset({""})
_OPENSSL: Final = "Python's ssl module has no place for it"
_GRANT: Final = "only the grant client_credentials is spoken"

# name: (values that ask for nothing, why any other is refused)
REFUSED: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "transactional.id": (_EMPTY, "this producer has no transactions; a saved producer is the way to write once"),
    "enable.gapless.guarantee": (
        frozenset({"false", "f", "0"}),
        "a record that fails is reported and the records after it go on",
    ),
    "queuing.strategy": (frozenset({"fifo"}), "records of a partition are sent in the order of produce()"),
    "topic.blacklist": (_EMPTY, "topics are chosen by subscribe()"),
    "plugin.library.paths": (_EMPTY, "plugins of librdkafka cannot be loaded"),
    "offset.store.method": (frozenset({"broker"}), "positions are kept by the broker"),
    "client.dns.lookup": (frozenset({"use_all_dns_ips"}), "names are never made canonical, which only GSSAPI needs"),
    "ssl.curves.list": (_EMPTY, _OPENSSL),
    "ssl.sigalgs.list": (_EMPTY, _OPENSSL),
    "ssl.keystore.location": (
        _EMPTY,
        f"{_OPENSSL}; turn the PKCS#12 file into PEM and give ssl.certificate.location and ssl.key.location",
    ),
    "ssl.keystore.password": (_EMPTY, _OPENSSL),
    "ssl.providers": (_EMPTY, _OPENSSL),
    "ssl.engine.location": (_EMPTY, _OPENSSL),
    "ssl.engine.id": (frozenset({"dynamic"}), _OPENSSL),
    "sasl.oauthbearer.grant.type": (frozenset({"client_credentials"}), _GRANT),
    "sasl.oauthbearer.assertion.private.key.file": (_EMPTY, _GRANT),
    "sasl.oauthbearer.assertion.private.key.passphrase": (_EMPTY, _GRANT),
    "sasl.oauthbearer.assertion.private.key.pem": (_EMPTY, _GRANT),
    "sasl.oauthbearer.assertion.file": (_EMPTY, _GRANT),
    "sasl.oauthbearer.assertion.claim.aud": (_EMPTY, _GRANT),
    "sasl.oauthbearer.assertion.claim.exp.seconds": (frozenset({"300"}), _GRANT),
    "sasl.oauthbearer.assertion.claim.iss": (_EMPTY, _GRANT),
    "sasl.oauthbearer.assertion.claim.jti.include": (frozenset({"false", "f", "0"}), _GRANT),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": (frozenset({"60"}), _GRANT),
    "sasl.oauthbearer.assertion.claim.sub": (_EMPTY, _GRANT),
    "sasl.oauthbearer.assertion.jwt.template.file": (_EMPTY, _GRANT),
    "sasl.oauthbearer.metadata.authentication.type": (frozenset({"none"}), "tokens of a cloud's own come by oauth_cb"),
}

# What librdkafka itself only takes through functions of its C interface, and says so in these words.
ONLY_IN_C: Final = (
    "log_cb background_event_cb socket_cb connect_cb closesocket_cb open_cb resolve_cb opaque "
    "default_topic_conf ssl_key ssl_certificate ssl_ca ssl_engine_callback_data ssl.certificate.verify_cb "
    "oauthbearer_token_refresh_cb interceptors consume_cb rebalance_cb offset_commit_cb dr_cb dr_msg_cb "
    "partitioner_cb msg_order_cmp "
)
