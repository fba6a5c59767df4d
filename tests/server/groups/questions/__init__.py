"""What a broker says about groups in the cases where memory is not to be trusted, asked by raw requests.

    python -m tests.server.groups.questions HOST:PORT [HOST:PORT]

prints the answers of one broker, or the differences between two. `test_against_kafka.py` asks oncelog and a real
Kafka. Nothing here depends on ids or times that two honest brokers would choose differently. Importing this fills the
table.
"""

from tests.server.groups.questions import consumer_groups, looking, members, mixed_groups, offsets
from tests.server.groups.questions.answers import answers
from tests.server.groups.questions.asking import QUESTIONS, commit, join, part, sync

__all__ = [
    "QUESTIONS",
    "answers",
    "commit",
    "consumer_groups",
    "join",
    "looking",
    "members",
    "mixed_groups",
    "offsets",
    "part",
    "sync",
]
