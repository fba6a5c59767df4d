"""Certificates with odd names, made by openssl, and what Java calls them."""

import subprocess
from pathlib import Path
from typing import Final

# As `openssl req -subj` takes them; and X500Principal.getName() of Java 17.
NAMES: Final = {
    "/CN=alice": "CN=alice",
    "/C=NL/ST=Nord Hölland/O=A, B/OU=x/CN=alice": "CN=alice,OU=x,O=A\\, B,ST=Nord Hölland,C=NL",
    '/DC=com/DC=example/UID=u1/CN= lead "q" end ': 'CN=\\ lead \\"q\\" end\\ ,UID=u1,DC=example,DC=com',
    "/O=A\\, B \\+ C/OU=x=y#z;<q>/CN=end ": "CN=end\\ ,OU=x\\=y\\#z\\;\\<q\\>,O=A\\, B \\+ C",
    "/CN=joe+UID=7+emailAddress=joe@x.y/serialNumber=12/street=Foo 3/title=Dr": (
        "2.5.4.12=#0c024472,STREET=Foo 3,2.5.4.5=#13023132,CN=joe+UID=7+1.2.840.113549.1.9.1=#16076a6f6540782e79"
    ),
    "/CN=#start\\\\back/emailAddress=a@b.c": "1.2.840.113549.1.9.1=#16056140622e63,CN=\\#start\\\\back",
}


def certificate(folder: Path, subject: str) -> Path:
    config = folder / "req.cnf"
    config.write_text("[req]\ndistinguished_name=dn\n[dn]\n")
    path = folder / f"{abs(hash(subject))}.pem"
    order = ["openssl", "req", "-config", str(config), "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    order += ["-nodes", "-utf8", "-multivalue-rdn", "-keyout", "/dev/null", "-subj", subject, "-out", str(path)]
    subprocess.run(order, check=True, capture_output=True, timeout=60)
    return path
