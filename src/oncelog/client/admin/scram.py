"""Users that prove who they are by SCRAM: asked for, made and removed, shaped as in confluent-kafka.

The password does not leave this process: what is sent is what was made of it.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from oncelog.client.admin.timeouts import Timeouts, refusal
from oncelog.client.errors import invalid_argument
from oncelog.client.net.retry import Outcomes
from oncelog.security.scram import LEAST_ITERATIONS, MOST_STORED_ITERATIONS, salted_password
from oncelog.security.users import NUMBERS, SALT_BYTES

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers


class ScramMechanism(IntEnum):
    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialsDescription:
    user: str
    scram_credential_infos: tuple[ScramCredentialInfo, ...]


@dataclass(frozen=True, slots=True)
class UserScramCredentialAlteration:
    user: str


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    scram_credential_info: ScramCredentialInfo
    password: bytes = field(repr=False)
    salt: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        info = self.scram_credential_info
        if not isinstance(self.password, bytes) or not self.password:
            raise invalid_argument("the password is bytes, and not empty")
        if info.mechanism not in NUMBERS:
            raise invalid_argument(f"{info.mechanism!r} is no mechanism")
        if not LEAST_ITERATIONS <= info.iterations <= MOST_STORED_ITERATIONS:
            raise invalid_argument(f"iterations: {LEAST_ITERATIONS} to {MOST_STORED_ITERATIONS}")


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    mechanism: ScramMechanism


async def describe(brokers: "Brokers", users: Sequence[str] | None, timeouts: Timeouts) -> Outcomes[str]:
    """Describe users; None stands for all of them."""

    def build(spoken: Any) -> Any:
        named = None if users is None else tuple(spoken.new("UserName", name=name) for name in users)
        return spoken.new("DescribeUserScramCredentialsRequest", users=named)

    answer = await brokers.request(
        None, "describe_user_scram_credentials", build, timeout_ms=timeouts.request_timeout_ms
    )
    failure = refusal(answer.error_code, answer.error_message)
    if failure is not None:
        raise failure
    return {str(each.user): _described(each) for each in answer.results}


def _described(result: Any) -> Any:
    infos = tuple(
        ScramCredentialInfo(ScramMechanism(int(each.mechanism)), int(each.iterations))
        for each in result.credential_infos
        if int(each.mechanism) in NUMBERS
    )
    failure = refusal(result.error_code, result.error_message)
    return failure or UserScramCredentialsDescription(str(result.user), infos)


async def alter(
    brokers: "Brokers", alterations: Sequence[UserScramCredentialAlteration], timeouts: Timeouts
) -> Outcomes[str]:
    salted = {
        each: await asyncio.to_thread(_salted, each)
        for each in alterations
        if isinstance(each, UserScramCredentialUpsertion)
    }
    deletions = [each for each in alterations if isinstance(each, UserScramCredentialDeletion)]

    def build(spoken: Any) -> Any:
        return spoken.new(
            "AlterUserScramCredentialsRequest",
            deletions=tuple(
                spoken.new("ScramCredentialDeletion", name=each.user, mechanism=int(each.mechanism))
                for each in deletions
            ),
            upsertions=tuple(
                spoken.new(
                    "ScramCredentialUpsertion",
                    name=each.user,
                    mechanism=int(each.scram_credential_info.mechanism),
                    iterations=each.scram_credential_info.iterations,
                    salt=salt,
                    salted_password=password,
                )
                for each, (salt, password) in salted.items()
            ),
        )

    answer = await timeouts.ask_controller(brokers, "alter_user_scram_credentials", build)
    return {str(each.user): refusal(each.error_code, each.error_message) for each in answer.results}


def _salted(upsertion: UserScramCredentialUpsertion) -> tuple[bytes, bytes]:
    info, salt = upsertion.scram_credential_info, upsertion.salt or secrets.token_bytes(SALT_BYTES)
    return salt, salted_password(NUMBERS[info.mechanism], upsertion.password, salt, info.iterations)
