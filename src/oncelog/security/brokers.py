"""The proof of a cluster's brokers to each other that they are brokers: SCRAM, by a secret that stands where they
agree.

The mechanism has a name of its own, so that no user's name means a broker, and no setting of users' mechanisms takes it
away. Who has proven it may do everything.
"""

import hashlib
from functools import lru_cache
from typing import Final

from oncelog.security.scram import LEAST_ITERATIONS, Credential, credential_of, salted_password

MECHANISM: Final = "ONCELOG-BROKER"
SCRAM: Final = "SCRAM-SHA-256"
PRINCIPAL: Final = "Broker:"  # and its number; users are `User:`


def is_broker(principal: str) -> bool:
    return principal.startswith(PRINCIPAL)


@lru_cache(maxsize=4)
def credential(secret: str) -> Credential:
    """The credential of every broker. The secret is drawn by chance and long, so the least work will do."""
    salt = hashlib.sha256(f"salt of {secret}".encode()).digest()
    return credential_of(SCRAM, salted_password(SCRAM, secret, salt, LEAST_ITERATIONS), salt, LEAST_ITERATIONS)
