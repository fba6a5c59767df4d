"""The users of this server or cluster, as they are at the moment."""

import secrets

from oncelog.security.documents import Kind
from oncelog.security.users import SECRET_BYTES, Users
from oncelog.server.topics import Topics


class KnownUsers:
    """`now` is what they are at the moment."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._secret = new_secret()
        self.now = Users({}, self._secret)
        topics.tell_documents(self._see)

    def _see(self, kind: Kind) -> None:
        if kind is Kind.USERS:
            self.now = Users(self._topics.document(kind), self._secret)


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)
