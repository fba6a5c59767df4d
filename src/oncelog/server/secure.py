"""The meaning of `oncelog.secure=true` for settings that were not given: listeners with TLS and passwords, the
certificate that `first_steps/` makes in the data folder, rights for its user, and for nobody else.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.server.settings import Settings

FOLDER: Final = "secure"  # in the data folder
KEYSTORE: Final = "server.pem"
USER: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def secure_folder(settings: Settings) -> str:
    return f"{settings.log_dir}/{FOLDER}"


def has_own_certificate(settings: Settings) -> bool:
    """Whether the certificate is one that is made here."""
    return settings.ssl_keystore_location == f"{secure_folder(settings)}/{KEYSTORE}"


def apply_secure(settings: Settings) -> None:
    """Set what is secure in the place of defaults alone: what was given stays, and is checked as ever."""
    given = settings.given
    if "listeners" not in given:
        settings.listeners = ("SASL_SSL://127.0.0.1:9092",)
    if not any(name.startswith("ssl.keystore.") for name in given):
        settings.ssl_keystore_location = f"{secure_folder(settings)}/{KEYSTORE}"
    if "authorizer.class.name" not in given:
        settings.authorizer_class_name = AUTHORIZER
    principal = f"User:{USER}"
    if principal not in settings.super_users.split(";"):
        settings.super_users = ";".join(filter(None, (settings.super_users, principal)))


def secure_conflicts(settings: Settings, protocols: Mapping[str, str]) -> Iterator[str]:
    """`protocols`: of each listener."""
    if not settings.authorizer_class_name:
        yield "oncelog.secure=true with authorizer.class.name= would let every user do everything"
    for name, protocol in protocols.items():
        if not protocol.endswith("SSL"):
            yield f"oncelog.secure=true, and the listener {name} is {protocol}: make it SASL_SSL or SSL"
    if settings.oncelog_cluster is not None:
        yield "oncelog.secure=true is for a server that stands alone: give the brokers of a cluster certificates"
