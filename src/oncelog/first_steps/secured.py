"""A server that secures itself: its certificates before it starts, its user before it listens."""

from typing import Final

from oncelog.clock import HOUR_MS, Clock
from oncelog.first_steps.files import SecureFolder, names_of
from oncelog.first_steps.greeting import greeting
from oncelog.server.broker import Broker, bracketed
from oncelog.server.endpoints import endpoints
from oncelog.server.secure import USER, has_own_certificate, secure_folder
from oncelog.server.service import Service
from oncelog.server.settings import Settings
from oncelog.server.users import add_user

RENEWAL_LOOK_MS: Final = HOUR_MS


def make_certificates(settings: Settings, clock: Clock) -> None:
    """Make certificates, before a broker is made: it reads them."""
    if has_own_certificate(settings):
        folder = SecureFolder(secure_folder(settings))
        folder.make_certificates(names_of(endpoints(settings)), clock.now().wall_ms)


class SecuredService(Service):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._folder = SecureFolder(secure_folder(broker.settings))

    async def start(self) -> None:
        await self._make_user()
        await super().start()
        await self.broker.aside.run(self._keep_client_files)
        self.broker.housekeeping.every(RENEWAL_LOOK_MS, self.renew)

    async def _make_user(self) -> None:
        """Make the user once. It stays, also where it has got another password since."""
        is_known = USER in self.broker.users.now.names
        password = await self.broker.aside.run(self._password, is_known)
        if not is_known:
            assert password is not None
            await add_user(self.broker, USER, password)

    def _password(self, is_known: bool) -> str | None:
        return self._folder.password_of(is_known=is_known, write=self._write_client_files)

    def _keep_client_files(self) -> None:
        """They tell where the server listens this time."""
        said = self._folder.client_properties()
        if "sasl.password" in said and said.get("bootstrap.servers") != self._here:
            self._write_client_files(said["sasl.password"])

    def _write_client_files(self, password: str) -> None:
        is_ours = has_own_certificate(self.broker.settings)
        self._folder.write_client_files(self._here, password, trusts_authority=is_ours)

    @property
    def _here(self) -> str:
        """The address at which the user gets in, from this machine."""
        broker = self.broker
        guarded = [each for each in broker.endpoints if each.protocol == "SASL_SSL"] or broker.endpoints
        here = guarded[0]
        port = here.advertised_port or broker.ports.get(here.name, here.port)
        return f"{bracketed(here.advertised_host or '127.0.0.1')}:{port}"

    @property
    def client_properties(self) -> dict[str, str]:
        return self._folder.client_properties()

    async def renew(self) -> None:
        await self.broker.aside.run(make_certificates, self.broker.settings, self.broker.clock)
        await self.broker.look_at_certificates()

    @property
    def for_people(self) -> str:
        """The words on how to get in, when it has started."""
        users = len(self.broker.users.now.names)
        return greeting(self._folder, self._here, users, who="the server", first_command="oncelog topics list")
