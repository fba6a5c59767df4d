"""An authority and the certificates that it signs, made by the openssl command."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "changeit"
_DAYS = "30"


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@dataclass(frozen=True)
class Certificate:
    folder: Path
    name: str

    @property
    def certificate(self) -> str:
        return str(self.folder / f"{self.name}.pem")

    @property
    def key(self) -> str:
        return str(self.folder / f"{self.name}.key")

    @property
    def locked_key(self) -> str:
        """The same key under PASSWORD."""
        path = self.folder / f"{self.name}.locked.key"
        if not path.exists():
            _openssl(self.folder, "pkey", "-in", self.key, "-aes256", "-passout", f"pass:{PASSWORD}", "-out", str(path))
        return str(path)

    @property
    def keystore(self) -> str:
        """Certificate and key as Java reads them, under PASSWORD."""
        path = self.folder / f"{self.name}.p12"
        arguments = ["-in", self.certificate, "-inkey", self.key, "-passout", f"pass:{PASSWORD}", "-out", str(path)]
        _openssl(self.folder, "pkcs12", "-export", "-name", self.name, *arguments)
        return str(path)

    @property
    def truststore(self) -> str:
        path = self.folder / f"{self.name}.trust.p12"
        order = ["keytool", "-importcert", "-noprompt", "-alias", self.name, "-file", self.certificate]
        order += ["-keystore", str(path), "-storetype", "PKCS12", "-storepass", PASSWORD]
        subprocess.run(order, check=True, capture_output=True, timeout=60)
        return str(path)


class Authority(Certificate):
    def __init__(self, folder: Path, name: str = "authority") -> None:
        super().__init__(folder, name)
        self_signed = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", _DAYS]
        extensions = [
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        ]
        _openssl(
            folder,
            "req",
            *self_signed,
            *extensions,
            "-subj",
            f"/CN={name}",
            "-keyout",
            self.key,
            "-out",
            self.certificate,
        )

    def signs(self, name: str, *alternative_names: str) -> Certificate:
        """A certificate for `IP:127.0.0.1` and `DNS:localhost`, or for other names."""
        made = Certificate(self.folder, name)
        names = ",".join(alternative_names or ("IP:127.0.0.1", "DNS:localhost"))
        request = str(self.folder / f"{name}.csr")
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        _openssl(self.folder, "req", *new_key, "-subj", f"/CN={name}", "-keyout", made.key, "-out", request)
        signed_by = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", _DAYS]
        signed = ["-in", request, *signed_by, "-extfile", str(extensions), "-out", made.certificate]
        _openssl(self.folder, "x509", "-req", *signed)
        return made
