"""Whether a password is that of a user, for who shows the password itself: PLAIN, and the page.

To find that out takes milliseconds, on purpose, in two threads that guessers keep busy. So what was right once is
remembered while the process runs, as a MAC under a key of chance: who shows it again waits for nobody
(docs/decisions/0016).
"""

import hmac
import secrets
from collections import OrderedDict
from typing import Final

from oncelog.security.scram import Found, is_password
from oncelog.security.users import MOST_USERS
from oncelog.server.aside import Aside
from oncelog.server.known_users import KnownUsers

KEY_BYTES: Final = 32
NOTHING: Final = bytes(32)


class Passwords:
    def __init__(self, users: KnownUsers, threads: Aside) -> None:
        self._users = users
        self._threads = threads
        self._key = secrets.token_bytes(KEY_BYTES)
        self._right: OrderedDict[str, bytes] = OrderedDict()  # by user; the one that was shown longest ago first

    def remembers(self, name: str, password: str) -> bool:
        """Whether `look` would find it right at once."""
        return self._is_remembered(name, self._mac(self._users.now.find_for_password(name)[1], password))

    async def look(self, name: str, password: str) -> tuple[bool, Found]:
        """Whether it is right, and by what that was found out."""
        mechanism, found = self._users.now.find_for_password(name)
        mac = self._mac(found, password)
        is_right = self._is_remembered(name, mac)
        if not is_right:
            is_right = await self._threads.run(is_password, mechanism, password, found)
        if is_right:
            self._right[name] = mac
            self._right.move_to_end(name)
            if len(self._right) > MOST_USERS:
                self._right.popitem(last=False)
        return is_right, found

    def _is_remembered(self, name: str, mac: bytes) -> bool:
        return hmac.compare_digest(mac, self._right.get(name, NOTHING))

    def _mac(self, found: Found, password: str) -> bytes:
        """Another one where the user has got another password: what is kept of it is in it."""
        return hmac.digest(self._key, found.credential.stored_key + password.encode(), "sha256")
