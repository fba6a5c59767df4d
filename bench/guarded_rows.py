"""Rows of a producer that has proven who it is and is asked for its rights at each request, against one of which nobody
asks anything, on a server that has no users."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

from bench.arena import MECHANISM, Arena
from bench.load import ProduceLoad
from bench.pairs import ratio_of
from bench.rows import Figures, Line, row
from oncelog.client.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    Admin,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.raw import RawConnection
from tests.raw.sasl import prove

USER, PASSWORD = "writer", "of the benchmark"
ITERATIONS = 4096
PREFIX = "bench-"
GUARDED = "a user with a rule, by SCRAM, against nobody asked: {}"
SPREAD = "the same: how far the median may be off"


def admit(address: str) -> None:
    """The user may write the benchmark's topics, and nothing else."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            PREFIX,
            ResourcePatternType.PREFIXED,
            f"User:{USER}",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
    ]
    with Admin({"bootstrap.servers": address}) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, PASSWORD.encode())])[USER].result()
        for made in admin.create_acls(rules).values():
            made.result()


def two_loads(
    arena: Arena, peer: str, records_per_batch: int
) -> Callable[[], AbstractContextManager[tuple[ProduceLoad, ProduceLoad]]]:
    guarded, port = arena.guarded(peer)
    admit(guarded.bootstrap_servers)

    def who(raw: RawConnection) -> None:
        assert prove(raw, USER, PASSWORD, MECHANISM).error_code.value == 0

    @contextmanager
    def loads() -> Iterator[tuple[ProduceLoad, ProduceLoad]]:
        open_port = arena.server(peer).port
        with (
            arena.topic(peer, server=guarded) as asked,
            arena.topic(peer) as unasked,
            closing(ProduceLoad(port, asked, records_per_batch, prove=who)) as by_user,
            closing(ProduceLoad(open_port, unasked, records_per_batch)) as by_nobody,
        ):
            yield by_user, by_nobody

    return loads


@row(
    Line("small", GUARDED.format("1 record a request, 16 in flight"), "≥ 0.97", above=0.97),
    Line("small_uncertainty", SPREAD, "< 0.03"),
    Line("medium", GUARDED.format("16 KB batches"), "≥ 0.97", above=0.97),
    Line("medium_uncertainty", SPREAD, "< 0.03"),
)
def guarded_produce(arena: Arena, peer: str) -> Figures:
    figures: Figures = {}
    for name, records, depth in (("small", 1, 16), ("medium", 150, 4)):
        ratio = ratio_of(two_loads(arena, peer, records), arena, f"{peer} and guarded", records, depth)
        figures |= {name: ratio.middle, f"{name}_uncertainty": ratio.uncertainty}
    return figures
