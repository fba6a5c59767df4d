"""The users of this server or cluster, as they are at the moment."""

import logging
import secrets
from typing import Final

from oncelog.security.documents import Kind
from oncelog.security.users import SECRET_BYTES, Users
from oncelog.server.topics import Topics

MOST_TOLD: Final = 10
UNREAD: Final = (
    "%s: what is kept of %d users cannot be read, and they do not get in by it: %r. Give them another password, or "
    "restore a copy; the others get in"
)
SECRET_UNREAD: Final = (
    "%s: the secret by which challenges are made up for names that nobody has cannot be read. Until some user gets "
    "another password, who asks before and after a start can tell such a name from a user's"
)

logger = logging.getLogger(__name__)


class KnownUsers:
    """`now` is what they are at the moment."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._secret = new_secret()
        self.now = Users({}, self._secret)
        topics.tell_documents(self._see)

    def _see(self, kind: Kind) -> None:
        if kind is not Kind.USERS:
            return
        self.now = Users(self._topics.document(kind), self._secret, self.now)
        where, unread = self._topics.where_documents_are, self.now.unread
        if unread:
            logger.error(UNREAD, where, len(unread), unread[:MOST_TOLD])
        if self.now.is_secret_unread:
            logger.error(SECRET_UNREAD, where)


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)
