"""The security of a broker's connection to ZooKeeper: TLS, a user, and nodes that only this user may read.

What brokers agree on names users and what they may do, so a user that may write there may do everything.
"""

import os
import ssl
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.security import make_acl

from oncelog.settings import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    is_encrypted: bool = False
    trusted_file: str | None = None  # PEM; those of the system, where there is none
    own_file: str | None = None  # PEM: certificate and key
    own_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    is_private: bool = False  # nodes are made for this user alone

    def check(self) -> None:
        """Raises SettingsError, before any connection is tried."""
        if self.is_private and not self.user:
            raise SettingsError(
                "zookeeper.set.acl=true makes nodes for one user alone: name it with oncelog.zookeeper.username and "
                "oncelog.zookeeper.password"
            )
        if bool(self.user) != bool(self.password):
            raise SettingsError("oncelog.zookeeper.username and oncelog.zookeeper.password: give both, or neither")
        if self.user and ":" in self.user:
            raise SettingsError("oncelog.zookeeper.username: ZooKeeper wants a name without a colon")
        for name, file in (("truststore", self.trusted_file), ("keystore", self.own_file)):
            if file is None:
                continue
            if not self.is_encrypted:
                raise SettingsError(
                    f"zookeeper.ssl.{name}.location says nothing without zookeeper.ssl.client.enable=true"
                )
            if not os.access(file, os.R_OK):
                raise SettingsError(f"zookeeper.ssl.{name}.location={file} cannot be read")
        self.context()

    def options(self) -> dict[str, Any]:
        """The options of kazoo's client."""
        found: dict[str, Any] = {}
        if self.is_encrypted:
            found |= {"use_ssl": True, "ca": self.trusted_file, "check_hostname": self.checks_host}
            if self.own_file is not None:
                own = {"certfile": self.own_file, "keyfile": self.own_file, "keyfile_password": self.own_password}
                found |= own
        if self.user:
            found["auth_data"] = [("digest", f"{self.user}:{self.password}")]
        if self.is_private:
            found["default_acl"] = [make_acl("auth", "", all=True)]
        return found

    def context(self) -> ssl.SSLContext | None:
        """The same for what is asked without kazoo."""
        if not self.is_encrypted:
            return None
        try:
            context = ssl.create_default_context(cafile=self.trusted_file)
            context.check_hostname = self.checks_host
            if self.own_file is not None:
                context.load_cert_chain(self.own_file, password=self.own_password)
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(f"zookeeper.ssl: the certificates cannot be used: {error}") from error
        return context


OPEN: Final = ZooKeeperSecurity()
