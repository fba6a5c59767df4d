"""A real Apache Kafka with a listener for each protocol, and one user for each mechanism."""

import subprocess
from pathlib import Path

from oncelog.chaos.life import free_ports
from tests.client.net.certificates import PASSWORD, Authority
from tests.peers.apache import CLUSTER_ID, QUICK_BROKER, ApacheKafka
from tests.peers.jars import kafka_java

LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "BRIEF": "SASL_PLAINTEXT",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, SECRET = "me", "s3cret word"
REAUTH_MS = 2000  # Kafka refuses a proof less than a second after the last one


class SecuredKafka(ApacheKafka):
    def __init__(self, folder: Path, authority: Authority) -> None:
        super().__init__(folder, jvm=QUICK_BROKER)
        self.authority = authority.certificate
        ports = [self.port, *free_ports(len(LISTENERS) - 1)]
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, ports, strict=True)}
        open_to_clients = ",".join(f"{name}://{address}" for name, address in self.addresses.items())
        controller = self.settings["listeners"].split(",")[1]
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
        server = authority.signs("server")
        self.settings |= {
            "listeners": f"{open_to_clients},{controller}",
            "advertised.listeners": open_to_clients,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": server.keystore,
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": authority.truststore,
            "ssl.truststore.password": PASSWORD,
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.brief.connections.max.reauth.ms": str(REAUTH_MS),
        }
        for listener in ("sasl_plaintext", "sasl_ssl", "brief"):
            for mechanism in MECHANISMS:
                name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
                self.settings[name] = login_module(mechanism)

    def prepare(self) -> None:
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        users: list[str] = []
        for mechanism in MECHANISMS[1:3]:
            users += ["--add-scram", f'{mechanism}=[name="{USER}",password="{SECRET}"]']
        order = kafka_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config), *users)
        subprocess.run(order, check=True, capture_output=True, timeout=self.start_seconds)


def login(kafka: SecuredKafka, listener: str) -> dict[str, str]:
    """Properties of a client that gets in at SASL_PLAINTEXT or SASL_SSL."""
    found = {"security.protocol": listener.lower(), "sasl.mechanism": "SCRAM-SHA-256"}
    found |= {"sasl.username": USER, "sasl.password": SECRET}
    return found | ({"ssl.ca.location": kafka.authority} if listener == "SASL_SSL" else {})


def login_module(mechanism: str) -> str:
    package = "org.apache.kafka.common.security"
    if mechanism == "PLAIN":
        return f'{package}.plain.PlainLoginModule required user_{USER}="{SECRET}";'
    if mechanism == "OAUTHBEARER":
        return f'{package}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    return f"{package}.scram.ScramLoginModule required;"
