"""Every known difference between oncelog's answers and Apache Kafka's, with the reason.

`test_questions.py` fails on a difference that is not listed here, and on one listed here that is gone.
`docs/compatibility.md` repeats this list; a test holds the two together.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    kafka: object
    oncelog: object
    reason: str


DIFFERENCES: dict[str, Difference] = {}
