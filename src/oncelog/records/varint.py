"""Zigzag varints, the numbers inside a record: seven bits a byte, low bits first, the sign in the lowest bit."""


def zigzag(value: int) -> bytes:
    """A signed number of at most 64 bits; one that fits 32 bits is the same bytes whichever width its field has."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    if rest < 0x80:
        return _ONE[rest]
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_ONE = [bytes((number,)) for number in range(0x80)]

# The results of zigzag() for 0 … 4095, and for -1 in the last place, so that a null's length needs no case of its own.
SMALL = [*(zigzag(number) for number in range(4096)), zigzag(-1)]
