"""How long one batch takes in the producer map, and how much memory it needs:  python -m tests.producers.measure

Not a test: it prints the table of docs/producers.md. Producers take turns, so that every look-up is for another one
than the last.
"""

import sys
import tracemalloc
from time import perf_counter

from oncelog.clock import Now
from oncelog.producers import FIRST_KAFKA_PID, Decision, ProducerMap

NOW = Now(0, 0)
BATCHES = 200_000
BEST_OF = 3
ROW = "| {:7} | {:>9} | {:>14} | {:>13} | {:>11} | {:>11} |\n"


def filled(first_pid: int, producers: int) -> ProducerMap:
    made = ProducerMap()
    for pid in range(first_pid, first_pid + producers):
        made.accept(pid, 0, 0, 1, 0, 0, NOW)
    return made


def append_us(first_pid: int, producers: int) -> float:
    """Judge and accept of the next batch, as in a normal append."""
    target = filled(first_pid, producers)
    judge, accept = target.judge, target.accept
    pids = range(first_pid, first_pid + producers)
    rounds = BATCHES // producers
    start = perf_counter()
    for sequence in range(1, rounds + 1):
        for pid in pids:
            judge(pid, 0, sequence, 1, NOW)
            accept(pid, 0, sequence, 1, sequence, 0, NOW)
    return (perf_counter() - start) / (rounds * producers) * 1e6


def duplicate_us(first_pid: int, producers: int) -> float:
    target = filled(first_pid, producers)
    rounds = BATCHES // 10 // producers or 1
    start = perf_counter()
    for _ in range(rounds):
        for pid in range(first_pid, first_pid + producers):
            assert target.judge(pid, 0, 0, 1, NOW)[0] is Decision.DUPLICATE
    return (perf_counter() - start) / (rounds * producers) * 1e6


def memory_bytes(first_pid: int, producers: int) -> int:
    tracemalloc.start()
    held = filled(first_pid, producers)
    size_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(list(held.live(NOW))) == producers
    return size_bytes


def snapshot_ms(first_pid: int, producers: int) -> float:
    target = filled(first_pid, producers)
    start = perf_counter()
    target.encode(NOW)
    return (perf_counter() - start) * 1e3


def main() -> None:
    sys.stdout.write(ROW.format("pids", "producers", "µs an append", "µs duplicate", "KB", "ms snapshot"))
    sys.stdout.write("|---" * 6 + "|\n")
    for kind, first_pid in (("leased", 1), ("Kafka's", FIRST_KAFKA_PID)):
        for producers in (1, 100, 10_000, 60_000):
            append = min(append_us(first_pid, producers) for _ in range(BEST_OF))
            duplicate = min(duplicate_us(first_pid, producers) for _ in range(BEST_OF))
            memory = f"{memory_bytes(first_pid, producers) / 1000:,.1f}"
            snapshot = min(snapshot_ms(first_pid, producers) for _ in range(BEST_OF))
            sys.stdout.write(
                ROW.format(kind, f"{producers:,}", f"{append:.2f}", f"{duplicate:.1f}", memory, f"{snapshot:.1f}")
            )


if __name__ == "__main__":
    main()
