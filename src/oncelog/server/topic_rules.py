"""Kafka's rules for topics: names, partitions, where they lie. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from oncelog.server.errors import ErrorCode, KafkaError

MAX_NAME_CHARS = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    if not name:
        raise _invalid_name("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise _invalid_name(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_NAME_CHARS:
        raise _invalid_name(
            f"Topic name is invalid: the length of '{name[:32]}...' is longer than the max allowed length "
            f"{MAX_NAME_CHARS}"
        )
    if not _LEGAL.fullmatch(name):
        raise _invalid_name(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )


def is_legal_name(name: str) -> bool:
    try:
        check_name(name)
    except KafkaError:
        return False
    return True


def collision_key(name: str) -> str:
    """Names that are equal under this key may not live side by side: Kafka's metrics cannot tell '.' from '_'."""
    return name.replace(".", "_")


def check_partitions(count: int, already: int, limit: int) -> None:
    if count < 1:
        raise KafkaError(ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value.")
    if already + count > limit:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"{count} more partitions would make {already + count} on this server; oncelog.max.partitions is {limit}",
        )


def check_replication(factor: int, broker_count: int) -> None:
    if factor == -1 or 1 <= factor <= broker_count:
        return
    if factor < 1:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
    else:
        are = "broker is" if broker_count == 1 else "brokers are"
        message = f"Unable to replicate the partition {factor} time(s): only {broker_count} {are} registered."
    raise KafkaError(ErrorCode.invalid_replication_factor, message)


def check_assignments(
    assignments: Mapping[int, Sequence[int]], known: Collection[int], up: Collection[int]
) -> list[Sequence[int]]:
    """Check the assignments by partition; they must be 0, 1, 2 ..., as many brokers each, and be possible."""
    if sorted(assignments) != list(range(len(assignments))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    check_brokers(assignments.values(), known)
    check_new(assignments, len(assignments[0]), up)
    return [assignments[index] for index in range(len(assignments))]


def check_brokers(replicas: Iterable[Sequence[int]], known: Collection[int]) -> None:
    for brokers in replicas:
        if not brokers:
            raise _bad_assignment("The manual partition assignment includes an empty replica list.")
        if len(set(brokers)) != len(brokers):
            raise _bad_assignment("The manual partition assignment includes a broker more than once.")
        for broker in brokers:
            if broker not in known:
                raise _bad_assignment(
                    f"The manual partition assignment includes broker {broker}, but no such broker is registered."
                )


def check_new(assignments: Mapping[int, Sequence[int]], factor: int, up: Collection[int]) -> None:
    """Check the assignments of partitions that are to be made: of each, one of its brokers must be up."""
    for index, brokers in assignments.items():
        if len(brokers) != factor:
            raise _bad_assignment(
                f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
                f"consistent with previous partitions, which have {factor} replica(s)."
            )
        if not any(broker in up for broker in brokers):
            raise _bad_assignment(
                f"All brokers specified in the manual partition assignment for partition {index} are down or stopping."
            )


def _invalid_name(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_topic_exception, message)


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, message)
