"""A client's side of TLS 1.3 once the handshake is over, by hand: records that no library sends, such as new keys again
and again."""

import hmac
import socket
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HASH, HASH_BYTES, KEY_BYTES, IV_BYTES = "sha384", 48, 32, 12  # of TLS_AES_256_GCM_SHA384
APPLICATION_DATA, HANDSHAKE = 0x17, 0x16
KEY_UPDATE = b"\x18\0\0\1"


class KeysByHand:
    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, log: Path) -> None:
        """`log`: a file that is not there yet, for the secrets."""
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(log)
        self.socket = socket.create_connection(address, timeout=10)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(65_536))
            else:
                break
        self.socket.sendall(self._outgoing.read())
        assert self._tls.cipher()[0] == "TLS_AES_256_GCM_SHA384"  # type: ignore[index]
        lines = [line.split() for line in log.read_text().splitlines()]
        self._use(next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"))

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._cipher = AESGCM(self._expanded(b"key", KEY_BYTES))
        self._iv = int.from_bytes(self._expanded(b"iv", IV_BYTES))
        self._sent = 0

    def _expanded(self, label: bytes, size: int) -> bytes:
        named = b"tls13 " + label
        info = size.to_bytes(2) + bytes([len(named)]) + named + b"\0"
        return hmac.digest(self._secret, info + b"\1", HASH)[:size]

    def record(self, data: bytes, kind: int = APPLICATION_DATA) -> bytes:
        head = b"\x17\3\3" + (len(data) + 17).to_bytes(2)
        nonce = (self._iv ^ self._sent).to_bytes(IV_BYTES)
        self._sent += 1
        return head + self._cipher.encrypt(nonce, data + bytes([kind]), head)

    def new_keys(self, *, asks: bool) -> bytes:
        sent = self.record(KEY_UPDATE + bytes([asks]), HANDSHAKE)
        self._use(self._expanded(b"traffic upd", HASH_BYTES))
        return sent

    def receive(self, size: int) -> bytes:
        """As many bytes; fewer where the server has closed."""
        found = b""
        while len(found) < size:
            try:
                found += self._tls.read(size - len(found))
            except ssl.SSLWantReadError:
                more = self.socket.recv(65_536)
                if not more:
                    break
                self._incoming.write(more)
        return found
