"""Up to where a partition may be read by who reads committed records, beside a search through all that have ended."""

from random import Random

from oncelog.producers.transactions import Transactions
from tests.depth import deeper, scaled


def stable(open_ones: dict[int, int], ended: list[tuple[int, int]], high_watermark: int) -> int:
    waits = [first for first, marker in ended if marker >= high_watermark]
    return min([high_watermark, *open_ones.values(), *waits])


@deeper
def test_it_is_where_the_first_transaction_began_whose_end_may_be_lost() -> None:
    for seed in range(scaled(20)):
        walk(seed)


def walk(seed: int) -> None:
    random, transactions = Random(seed), Transactions()
    open_ones: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for offset in range(200):
        if open_ones and random.random() < 0.5:
            pid = random.choice(list(open_ones))
            ended.append((open_ones.pop(pid), offset))
            transactions.ended(pid, 0, offset)
        else:
            open_ones[offset] = offset
            transactions.began(offset, offset)
        if random.random() < 0.2:
            high_watermark = random.randint(high_watermark, offset + 1)
        assert transactions.stable_offset(high_watermark, 0) == stable(open_ones, ended, high_watermark), (seed, offset)
