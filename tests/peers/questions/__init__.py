"""Questions that any broker can be asked, by what they are about. Importing this fills the table."""

from tests.peers.questions import basics, fetch, fetch_sessions, groups, managing, produce, quotas, topics, transactions
from tests.peers.questions.asking import QUESTIONS, Question

__all__ = [
    "QUESTIONS",
    "Question",
    "basics",
    "fetch",
    "fetch_sessions",
    "groups",
    "managing",
    "produce",
    "quotas",
    "topics",
    "transactions",
]
