"""Pids that say whose they are, so that a broker needs to remember nothing about them.

A pid has 63 bits, and the number by which it was granted needs few of them. Below the number stands a tag, made of it,
of its owner's name and of a secret that brokers share. So any broker can tell whether a pid is somebody's, also one
that has just become the leader, and after every crash. Without the secret nobody can make one that is another's; of
eight million that are tried, one is somebody's by chance.

Bound pids are the greatest of all, in the order of their numbers. What is smaller was granted without an owner.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Final

FIRST_BOUND_PID: Final = 1 << 62
NUMBER_BITS: Final = 39
TAG_BITS: Final = 62 - NUMBER_BITS
REMEMBERED: Final = 10_000  # decisions: a producer asks with every batch
_PURPOSE: Final = b"oncelog pid"


class PidBinding:
    def __init__(self, secret: str) -> None:
        if not secret:
            raise ValueError("a secret that everybody knows would bind nothing")
        self._key = blake2b(secret.encode(), digest_size=32).digest()
        self._is_of = lru_cache(REMEMBERED)(lambda pid, owner: self.bound(number_of(pid), owner) == pid)

    def bound(self, number: int, owner: str) -> int:
        """The pid for its owner, of what was granted to nobody else."""
        if number >> NUMBER_BITS:
            raise OverflowError(f"pid {number} is too large to be bound")
        return FIRST_BOUND_PID | number << TAG_BITS | self._tag(number, owner)

    def may_use(self, pid: int, owner: str) -> bool:
        """Whether the owner may use the pid. Everybody may use one that is bound to nobody."""
        return pid < FIRST_BOUND_PID or self._is_of(pid, owner)

    def _tag(self, number: int, owner: str) -> int:
        told = number.to_bytes(8, "big") + owner.encode("utf-8", "surrogatepass")
        digest = blake2b(told, digest_size=8, key=self._key, person=_PURPOSE).digest()
        return int.from_bytes(digest, "big") >> (64 - TAG_BITS)


def number_of(pid: int) -> int:
    """The number by which a pid was granted, whether it is bound or not."""
    return pid if pid < FIRST_BOUND_PID else (pid - FIRST_BOUND_PID) >> TAG_BITS


def of_transactional_id(name: str) -> str:
    """The owner of the pids of a transactional id: any user who may write by it, and nobody outside of it. No
    principal has this name, whose kind is another."""
    return f"TransactionalId:{name}"
