"""Whoever wrote it, it is read; whatever it claims, it takes no more memory than was allowed."""

import gzip
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cramjam
import pytest
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, snappy_encode, zstd_decode
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.codecs import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from oncelog.records.errors import BadCompression, TooLarge
from tests.records.samples import CODECS, ROOT

TEXT = b"The log keeps every record once. " * 4000
COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
ROOM = 1 << 20


def lz4_stream(data: bytes, **options: bool) -> bytes:
    compressor = cramjam.lz4.Compressor(**options)
    compressor.compress(data)
    return bytes(compressor.finish())


def zstd_stream(data: bytes) -> bytes:
    """Without a content size, as stream writers leave it."""
    compressor = cramjam.zstd.Compressor()
    compressor.compress(data)
    return bytes(compressor.finish())


FOREIGN = {
    "gzip of two members": (GZIP, gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
    "gzip at level 9": (GZIP, gzip.compress(TEXT, 9)),
    "bare snappy": (SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "framed snappy": (SNAPPY, bytes(snappy_encode(TEXT))),
    "two framed snappies": (SNAPPY, bytes(snappy_encode(TEXT[:1000])) + bytes(snappy_encode(TEXT[1000:]))),
    "lz4 of linked blocks": (LZ4, lz4_stream(TEXT, block_linked=True, content_checksum=True)),
    "lz4 with its size": (LZ4, bytes(cramjam.lz4.compress(TEXT))),
    "two lz4 frames": (LZ4, lz4_stream(TEXT[:1000]) + lz4_stream(TEXT[1000:])),
    "zstd with its size": (ZSTD, bytes(cramjam.zstd.compress(TEXT, 19))),
    "zstd without its size": (ZSTD, zstd_stream(TEXT)),
    "two zstd frames": (ZSTD, bytes(cramjam.zstd.compress(TEXT[:1000])) + zstd_stream(TEXT[1000:])),
}


@pytest.mark.parametrize(("codec", "data"), FOREIGN.values(), ids=FOREIGN)
def test_what_others_write_is_read(codec: int, data: bytes) -> None:
    assert bytes(decompress(codec, data, ROOM)) == TEXT
    assert bytes(decompress(codec, memoryview(b"x" + data)[1:], len(TEXT))) == TEXT
    with pytest.raises(TooLarge):
        decompress(codec, data, len(TEXT) - 1)


def test_what_we_write_others_read() -> None:
    assert gzip_decode(bytes(compress(GZIP, TEXT))) == TEXT
    assert bytes(snappy_decode(bytes(compress(SNAPPY, TEXT)))) == TEXT
    assert bytes(lz4_decode(bytes(compress(LZ4, TEXT)))) == TEXT
    assert bytes(zstd_decode(bytes(compress(ZSTD, TEXT)))) == TEXT


def test_lz4_blocks_are_independent_because_java_refuses_linked_ones() -> None:
    flags = bytes(compress(LZ4, TEXT))[4]
    assert flags & 0b0010_0000


@given(st.sampled_from(list(CODECS)), st.binary(max_size=4000), st.integers(1, 60))
def test_bytes_come_back_as_they_were(codec: int, data: bytes, repeats: int) -> None:
    data = data * repeats
    for given_as in (data, bytearray(data), memoryview(data)):
        assert bytes(decompress(codec, compress(codec, given_as), max(len(data), 1))) == data


@pytest.mark.parametrize(
    "codec, higher, lower", [(GZIP, 9, 1), (GZIP, 1, 0), (GZIP, 12, 1), (LZ4, 12, 1), (ZSTD, 12, 3)]
)
def test_a_higher_level_makes_less_of_it(codec: int, higher: int, lower: int) -> None:
    data = b"".join(b"%d,%x;" % (number * 7919 % 100_003, number) for number in range(20_000))
    much, little = (bytes(compress(codec, data, level)) for level in (lower, higher))
    assert len(little) < len(much)
    assert bytes(decompress(codec, little)) == bytes(decompress(codec, much)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_every_level_that_can_be_asked_for_can_be_read(codec: int) -> None:
    for level in range(-1, 13):
        assert bytes(decompress(codec, compress(codec, TEXT, level))) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_and_overlong_data_is_refused(codec: int) -> None:
    data = bytes(compress(codec, TEXT[:3000]))
    for size in range(len(data)):
        if codec == SNAPPY and size == 16:
            continue  # the frame's header alone: no block, no bytes
        with pytest.raises(BadCompression):
            decompress(codec, data[:size], ROOM)
    with pytest.raises(BadCompression):
        decompress(codec, data + b"rest of another kind", ROOM)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_flipped_bit_is_refused_or_gives_bounded_bytes(codec: int) -> None:
    data = bytes(compress(codec, TEXT[:500] + bytes(range(256))))
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            try:
                assert len(decompress(codec, flipped, ROOM)) <= ROOM
            except BadCompression:
                pass


def snappy_pieces(count: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(b"a"))
    return bytes(compress(SNAPPY, b"")) + (struct.pack(">i", len(block)) + block) * count


CRUMBS = {
    "empty gzip members": (GZIP, gzip.compress(b"", mtime=0), 1024),
    "gzip members of a byte": (GZIP, gzip.compress(b"a", mtime=0), 1024),
    "snappy headers": (SNAPPY, bytes(compress(SNAPPY, b"")), 1024),
    "snappy blocks of a byte": (SNAPPY, snappy_pieces(8), 128),
}


@pytest.mark.parametrize(("codec", "crumb", "enough"), CRUMBS.values(), ids=CRUMBS)
def test_many_streams_are_read_and_too_many_are_refused(codec: int, crumb: bytes, enough: int) -> None:
    one = bytes(decompress(codec, crumb, ROOM))
    assert bytes(decompress(codec, crumb * (enough // 2), ROOM)) == one * (enough // 2)
    with pytest.raises(BadCompression, match="more"):
        decompress(codec, crumb * (ROOM // len(crumb)), ROOM)


def test_what_follows_a_gzip_member_is_not_copied_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given_bytes = 0
    make = zlib.decompressobj

    class Member:
        def __init__(self, wbits: int) -> None:
            self._member = make(wbits=wbits)

        def decompress(self, data: memoryview, most_bytes: int) -> bytes:
            nonlocal given_bytes
            given_bytes += len(data)
            return self._member.decompress(data, most_bytes)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._member, name)

    monkeypatch.setattr(zlib, "decompressobj", Member)
    stored = gzip.compress(random.Random(1).randbytes(9_000)) * 1_000
    assert len(decompress(GZIP, stored, 10 * ROOM)) == 9_000_000
    assert given_bytes <= len(stored) + 1_000 * (64 << 10), "64 KB for each member, not all that is left"


@pytest.mark.parametrize("codec", [-1, 5, 7, 99])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(BadCompression):
        decompress(codec, b"x", ROOM)
    with pytest.raises(BadCompression):
        compress(codec, b"x")


def test_stored_bytes_are_bounded_too() -> None:
    with pytest.raises(TooLarge):
        decompress(0, bytes(11), 10)


def zstd_bomb(size_bytes: int) -> bytes:
    """A frame of blocks that each say 128 KiB by 4 bytes."""
    block = struct.pack("<I", 128 << 10 << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", 128 << 10 << 3 | 1 << 1 | 1)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * ((size_bytes >> 17) - 1) + last


def snappy_claim() -> bytes:
    """A block that says it is 4 GiB less one."""
    return b"\xff\xff\xff\xff\x0f" + b"\0a"


def gzip_bomb(size_bytes: int) -> bytes:
    compressor = zlib.compressobj(1, wbits=31)
    return b"".join(compressor.compress(bytes(1 << 20)) for _ in range(size_bytes >> 20)) + compressor.flush()


def lz4_bomb(size_bytes: int) -> bytes:
    frame = lz4_stream(bytes(16 << 20), block_linked=False)
    return frame * (size_bytes >> 24)


def zstd_claim() -> bytes:
    """A frame whose header says 2^62 bytes."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 62) + b"\x01\0\0" + bytes(20)


BOMB_BYTES = 256 << 20
ALLOWED_BYTES = 4 << 20
MEMORY_KB = 24 << 10


def bombs() -> list[tuple[int, bytes]]:
    framed = bytes(compress(SNAPPY, bytes(16 << 20)))
    return [
        (GZIP, gzip_bomb(BOMB_BYTES)),
        (SNAPPY, snappy_claim()),
        (SNAPPY, framed * 8),
        (LZ4, lz4_bomb(BOMB_BYTES)),
        (ZSTD, zstd_bomb(BOMB_BYTES)),
        (ZSTD, zstd_claim()),
    ]


def explode(folder: str) -> None:
    """Run by the test below in a process of its own, whose peak memory says what the bombs cost."""
    import resource

    loaded = [(int(path.suffix[1:]), path.read_bytes()) for path in sorted(Path(folder).iterdir())]
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for codec, data in loaded:
        try:
            decompress(codec, data, ALLOWED_BYTES)
        except TooLarge:
            continue
        raise AssertionError(f"codec {codec} unfolded a bomb")
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert loaded and grown_kb < MEMORY_KB, f"{grown_kb} KB for bombs of which {ALLOWED_BYTES >> 10} KB were allowed"


def test_a_bomb_is_refused_before_it_is_unfolded(tmp_path: Path) -> None:
    for number, (codec, data) in enumerate(bombs()):
        (tmp_path / f"bomb-{number}.{codec}").write_bytes(data)
    code = "import sys; from tests.records.test_codecs import explode; explode(sys.argv[1])"
    order = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(order, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("size_bytes", [16 << 20, 17 << 20])
@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_is_unfolded_is_not_held_twice(codec: int, size_bytes: int) -> None:
    """Whether it is all that is allowed, or too much; a buffer that turned out too small makes a quarter more."""
    allowed_bytes = 16 << 20
    data = bytes(compress(codec, bytes(size_bytes)))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge) if size_bytes > allowed_bytes else nullcontext():
            decompress(codec, data, allowed_bytes)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1.5 * allowed_bytes


def test_a_bomb_really_is_one() -> None:
    assert bytes(decompress(ZSTD, zstd_bomb(1 << 20), 1 << 20)) == bytes(1 << 20)
    assert bytes(decompress(GZIP, gzip_bomb(1 << 20), 1 << 20)) == bytes(1 << 20)
