"""Arithmetic of sequences and generations, which wrap.

Sequences count records from 0 and wrap after 2^31 - 1. Generations are Kafka's 16-bit producer epochs without the sign
and wrap after 2^15 - 1. Both are compared within half of their circle: what lies less than half a turn ahead is newer.
"""

SEQUENCES = 1 << 31
SEQUENCE_MASK = SEQUENCES - 1
SEQUENCE_WINDOW = 1 << 30

GENERATIONS = 1 << 15
GENERATION_WINDOW = 1 << 14

NO_SEQUENCE = -1  # nothing accepted yet; the sequence after it is 0, as modular arithmetic wants it


def sequence_after(sequence: int, records: int = 1) -> int:
    return (sequence + records) & SEQUENCE_MASK


def records_behind(last_sequence: int, first_sequence: int) -> int:
    """The distance of `first_sequence` behind the sequence that is due, round the circle: 0 when it is the due one."""
    return (last_sequence + 1 - first_sequence) & SEQUENCE_MASK


def generations_ahead(stored: int, generation: int) -> int:
    """The distance of `generation` ahead of the stored one, going round the circle."""
    return (generation - stored) % GENERATIONS


def is_newer_generation(stored: int, generation: int) -> bool:
    return generation >= 0 and 0 < generations_ahead(stored, generation) < GENERATION_WINDOW
