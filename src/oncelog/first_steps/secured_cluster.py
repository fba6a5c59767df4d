"""A cluster on one machine that secures itself: one certificate for all of its brokers, and one user.

The user is made where brokers agree, before the first of them is up.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from oncelog.clock import Clock, SystemClock
from oncelog.cluster.parent import Parent
from oncelog.cluster.stored_documents import change_in_tree
from oncelog.cluster.tree import Tree, in_session
from oncelog.first_steps.files import SecureFolder, names_of
from oncelog.first_steps.greeting import greeting
from oncelog.first_steps.secured import RENEWAL_LOOK_MS
from oncelog.security.documents import Change, Document, Kind
from oncelog.security.users import Users
from oncelog.server.endpoints import endpoints
from oncelog.server.secure import AUTHORIZER, FOLDER, KEYSTORE, USER
from oncelog.server.settings_reading import read_settings
from oncelog.server.users import adding, new_credentials
from oncelog.settings import SettingsError

logger = logging.getLogger(__name__)

AGREED_WITHIN_S: Final = 30


class SecuredParent(Parent):
    def __init__(
        self,
        folder: str,
        count: int,
        settings: Mapping[str, str],
        *,
        addresses: Sequence[str] = (),
        tree: Tree | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._looked_ms = self._clock.now().monotonic_ms  # at the certificate
        self._secure = SecureFolder(f"{folder}/{FOLDER}")
        given = {
            "ssl.keystore.location": str(self._secure.path / KEYSTORE),
            "ssl.truststore.location": str(self._secure.authority_file),
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{USER}",
            **{name: value for name, value in settings.items() if name != "oncelog.secure"},
            "listeners": "SASL_SSL://127.0.0.1:0",
        }
        super().__init__(folder, count, given, addresses=addresses, tree=tree)
        self._given_addresses = addresses
        self._user_count = 0

    def _make_certificates(self) -> None:
        where = ",".join(f"L{place}://{address}" for place, address in enumerate(self._given_addresses))
        protocols = ",".join(f"L{place}:PLAINTEXT" for place in range(len(self._given_addresses)))
        named = {"listeners": where, "listener.security.protocol.map": protocols} if where else {}
        self._secure.make_certificates(names_of(endpoints(read_settings(named))), self._clock.now().wall_ms)

    def start_tree(self) -> None:
        self._make_certificates()
        super().start_tree()
        users = self._run(self._change_users(lambda users: users))
        is_known = USER in _names(users)
        password = self._secure.password_of(is_known=is_known, write=self._write_client_files)
        if not is_known:
            assert password is not None
            users = self._run(self._change_users(_adding(password)))
        self._user_count = len(_names(users))

    def start_all(self) -> None:
        super().start_all()
        password = self._secure.password()
        if password is not None:
            self._write_client_files(password)  # with the ports that were free

    def keep_up(self) -> None:
        super().keep_up()
        now_ms = self._clock.now().monotonic_ms
        if now_ms - self._looked_ms < RENEWAL_LOOK_MS:
            return
        self._looked_ms = now_ms
        try:
            self._make_certificates()  # the brokers look at the file
        except (OSError, SettingsError) as refusal:
            logger.error("the certificate cannot be looked at, or renewed: %s", refusal)
        except Exception:  # the brokers go on
            logger.exception("the certificate cannot be looked at, or renewed")

    def _write_client_files(self, password: str) -> None:
        self._secure.write_client_files(self.bootstrap_servers, password, trusts_authority=True)

    async def _change_users(self, change: Change) -> Document:
        """The users after the change."""
        async with in_session(self._agreed, AGREED_WITHIN_S) as tree:
            return await change_in_tree(tree, Kind.USERS, change)

    @property
    def client_properties(self) -> dict[str, str]:
        return self._secure.client_properties()

    @property
    def for_people(self) -> str:
        """The words on how to get in, when it has started."""
        servers = self.bootstrap_servers
        first = "oncelog cluster describe"
        return greeting(self._secure, servers, self._user_count, who="the cluster", first_command=first)


def _adding(password: str) -> Change:
    """Make the user once. It stays, also where it has got another password since."""
    change = adding(USER, new_credentials(password))
    return lambda users: users if USER in _names(users) else change(users)


def _names(users: Document) -> Collection[str]:
    return Users(users, b"").names
