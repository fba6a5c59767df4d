"""Changes to the users of this server or cluster."""

import secrets
from collections.abc import Sequence

from oncelog.security.documents import Change, Document, Kind, TooMuch
from oncelog.security.scram import HASHES, Credential, credential_of, salted_password
from oncelog.security.users import DEFAULT_ITERATIONS, SALT_BYTES, Edited, Users, what_is_wrong_with
from oncelog.server.broker import Broker
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.known_users import new_secret


def new_credentials(
    password: str, mechanisms: Sequence[str] = tuple(HASHES), iterations: int = DEFAULT_ITERATIONS
) -> dict[str, Credential]:
    """New credentials, by mechanism. Some ten milliseconds of work."""
    found = {}
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, iterations)
        found[mechanism] = credential_of(mechanism, salted, salt, iterations)
    return found


def put(changed: Edited, name: str, mechanism: str, credential: Credential) -> None:
    try:
        changed.put(name, mechanism, credential)
    except TooMuch as refusal:
        raise KafkaError(ErrorCode.policy_violation, str(refusal)) from refusal


def adding(name: str, credentials: dict[str, Credential]) -> Change:
    """A change of the document: this user can prove it by these, and by others that there were before."""
    if wrong := what_is_wrong_with(name):
        raise KafkaError(ErrorCode.unacceptable_credential, wrong)
    secret = new_secret()

    def change(document: Document) -> Document:
        changed = Edited(document, secret)
        for mechanism, credential in credentials.items():
            put(changed, name, mechanism, credential)
        return changed.document

    return change


async def add_user(broker: Broker, name: str, password: str) -> None:
    """Or give a user another password. What is connected already stays so until it proves it again."""
    change = adding(name, await broker.aside.run(new_credentials, password))
    await broker.turns.run(broker.topics.changing_document(Kind.USERS, change, broker.clock.now()))


def removing(name: str, mechanisms: Sequence[str] = ()) -> Change:
    """The change that removes these mechanisms of a user, or all. Raises KafkaError where there is nothing to
    remove."""

    def change(document: Document) -> Document:
        has = Users(document, b"").mechanisms(name)
        gone = [each for each in has if not mechanisms or each in mechanisms]
        if not gone:
            raise KafkaError(
                ErrorCode.resource_not_found, f"there is no user {name}" if not has else f"{name} has none"
            )
        changed = Edited(document, b"")
        for mechanism in gone:
            changed.remove(name, mechanism)
        return changed.document

    return change
