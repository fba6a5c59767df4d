"""What kind of history a seed tells: which server, which settings, which faults."""

from dataclasses import dataclass, field
from random import Random

from oncelog.slots.limits import SenderLimits
from tests.model.partition import FOREVER

MANY = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """`name` picks the rules; the rest is drawn from the seed."""

    name: str
    is_leased: bool = False
    is_idempotent: bool = True
    clients: int = 1  # two of them replay the same records into the same slots
    is_pinned: bool = False
    first_sequence: int = 0  # where a producer that was saved before goes on
    has_faults: bool = True
    lifetime_ms: int = FOREVER
    forget_after_ms: int = FOREVER  # stock Kafka, by the records' timestamps
    record_age_ms: int = 0  # how old the records' timestamps are
    sleep_ms: int = 0  # one of two clients has nothing to send for so long, in the middle of all
    doze_ms: int = 0  # one of two clients sleeps for so long between stamping a batch and sending it
    dozes_in_write: bool = False  # so late that no look at a clock comes between
    linger_ms: int = 800  # how long a request may live on in the network after its connection was cut
    limits: SenderLimits = field(default_factory=SenderLimits)
    batches: int = 24
    partitions: int = 1
    duration_ms: int = 6_000


NAMES = (
    "leased",
    "short leases",
    "stock",
    "impatient",
    "forgetful",
    "old records",
    "shared",
    "sleeper",
    "dozer",
    "plain",
)


def flavour_of(seed: int, name: str | None = None) -> Flavour:
    rng = Random(seed * 7919 + 17)
    name = name or NAMES[seed % len(NAMES)]
    is_impatient = name == "impatient"  # gives records up while others are under way
    is_shared = name in ("shared", "sleeper", "dozer")
    is_brief = is_impatient or (rng.random() < 0.3 and not is_shared)
    limits = SenderLimits(
        is_idempotent=name != "plain",
        max_in_flight=rng.choice((1, 2, 5, 5)),
        max_request_bytes=rng.choice((400, 100_000)),
        delivery_timeout_ms=rng.choice((300, 700, 1_500)) if is_brief else 300_000,
        retries=rng.choice((0, 2, 5)) if rng.random() < (0.4 if is_impatient else 0.1) and not is_shared else MANY,
        retry_backoff_ms=rng.choice((5, 50)),
        retry_backoff_max_ms=200,
        settle_ms=2_000,
        forget_after_ms={"forgetful": 4_000, "old records": 5_000, "sleeper": 5_000, "dozer": 5_000}.get(name, FOREVER),
    )
    is_leased = name in ("leased", "short leases")
    return Flavour(
        name=name,
        is_leased=is_leased,
        is_idempotent=limits.is_idempotent,
        clients=2 if is_shared else 1,
        first_sequence=2**31 - rng.randrange(60) if (name == "stock" or is_shared) and rng.random() < 0.3 else 0,
        is_pinned=is_leased and rng.random() < 0.2,
        lifetime_ms={"short leases": 2_000, "leased": 60_000}.get(name, FOREVER),
        forget_after_ms=limits.forget_after_ms,
        record_age_ms=10_000 if name == "old records" else 0,
        sleep_ms=rng.choice((6_000, 20_000)) if name == "sleeper" else 0,
        doze_ms=rng.choice((6_000, 20_000)) if name == "dozer" else 0,
        dozes_in_write=name == "dozer" and rng.random() < 0.5,
        linger_ms=3_500 if is_leased else 800,
        limits=limits,
        batches=rng.randrange(6, 40),
        partitions=1 if is_impatient else rng.choice((1, 1, 2, 3)),
        duration_ms=rng.choice((300, 1_000) if name in ("impatient", "forgetful") else (300, 2_000, 6_000)),
    )
