"""Certificates and settings for servers with TLS; each file of them is made once for a test module."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncelog.embedded import Server
from tests.client.net.certificates import Authority, Certificate


@dataclass(frozen=True)
class World:
    folder: Path
    authority: Authority
    server: Certificate
    client: Certificate
    stranger: Authority

    @property
    def keystore(self) -> str:
        return keystore(self.server)

    def serve(self, **settings: Any) -> Server:
        given = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl_keystore_location": self.keystore,
            "ssl_truststore_location": self.authority.certificate,
        }
        return Server(**{name: value for name, value in (given | settings).items() if value is not None})

    def context(self, certificate: Certificate | None = None) -> ssl.SSLContext:
        """A client's."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        return context

    def properties(self, server: Server, certificate: Certificate | None = None) -> dict[str, str]:
        """The same for clients of librdkafka's kind."""
        own = certificate and {
            "ssl.certificate.location": certificate.certificate,
            "ssl.key.location": certificate.key,
        }
        return {
            "bootstrap.servers": server.bootstrap_servers,
            "security.protocol": "ssl",
            "ssl.ca.location": self.authority.certificate,
            **(own or {}),
        }


def new_world(folder: Path) -> World:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    authority = Authority(folder)
    return World(folder, authority, authority.signs("server"), authority.signs("client"), Authority(elsewhere, "other"))


def address(server: Server) -> tuple[str, int]:
    host, _, port = server.bootstrap_servers.partition(":")
    return host, int(port)


def keystore(certificate: Certificate) -> str:
    path = certificate.folder / f"{certificate.name}.keystore.pem"
    path.write_text(Path(certificate.key).read_text() + Path(certificate.certificate).read_text())
    return str(path)
