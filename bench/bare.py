"""Programs that do the least that could be called the same work: what the machine itself allows.

    python -m bench.bare copy FILE       takes frames from a socket, writes them to FILE, answers 8 bytes each
    python -m bench.bare send FILE       answers (offset, size) with the size and those bytes, by pread and send
    python -m bench.bare sendfile FILE   the same by sendfile, as Kafka does

Each serves one connection after the other and prints its port first.
"""

import os
import socket
import struct
import sys
from typing import BinaryIO

LARGEST_FRAME_BYTES = 16 << 20
_FRAME = struct.Struct(">ihhi")  # size, key, version, correlation id
_WANTED = struct.Struct(">qi")


def copy(sock: socket.socket, file: BinaryIO) -> None:
    buffer = memoryview(bytearray(LARGEST_FRAME_BYTES))
    fd, filled = file.fileno(), 0
    while got := sock.recv_into(buffer[filled:]):
        filled += got
        at, answers = 0, bytearray()
        while filled - at >= _FRAME.size:
            size, _, _, correlation_id = _FRAME.unpack_from(buffer, at)
            if filled - at < size + 4:
                break
            at += size + 4
            answers += struct.pack(">ii", 4, correlation_id)
        if at:
            os.write(fd, buffer[:at])
            sock.sendall(answers)
            buffer[: filled - at] = bytes(buffer[at:filled])
            filled -= at


def send(sock: socket.socket, file: BinaryIO) -> None:
    fd = file.fileno()
    while wanted := sock.recv(_WANTED.size):
        offset, size = _WANTED.unpack(wanted)
        data = os.pread(fd, size, offset)
        sock.sendmsg([struct.pack(">i", len(data))], [], socket.MSG_MORE)
        sock.sendall(data)


def sendfile(sock: socket.socket, file: BinaryIO) -> None:
    fd = file.fileno()
    while wanted := sock.recv(_WANTED.size):
        offset, size = _WANTED.unpack(wanted)
        size = max(0, min(size, os.fstat(fd).st_size - offset))
        sock.sendmsg([struct.pack(">i", size)], [], socket.MSG_MORE)
        while size:
            sent = os.sendfile(sock.fileno(), fd, offset, size)
            offset += sent
            size -= sent


PROGRAMS = {"copy": copy, "send": send, "sendfile": sendfile}


def main() -> None:
    program, path = PROGRAMS[sys.argv[1]], sys.argv[2]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with sock, open(path, "ab" if program is copy else "rb") as file:
                program(sock, file)


if __name__ == "__main__":
    main()
