"""Buffers are used again when nobody has them any more, not before, and no more are kept than were promised."""

from oncelog.client.producer.buffers import MOST_KEPT_BYTES, Buffers

SIZE = 4 << 20


def address(buffer: object) -> int:
    return int(buffer.__array_interface__["data"][0])  # type: ignore[attr-defined]


def test_a_buffer_that_nobody_has_is_used_again() -> None:
    buffers = Buffers()
    first = address(buffers.take(SIZE))
    assert address(buffers.take(SIZE - 1000)) == first


def test_a_slice_of_it_keeps_it() -> None:
    buffers = Buffers()
    taken = buffers.take(SIZE)
    first, on_its_way = address(taken), taken.data[10:20]
    del taken
    other = buffers.take(SIZE)
    assert address(other) != first
    on_its_way.release()
    assert address(buffers.take(SIZE)) == first


def test_no_more_is_kept_than_the_bound() -> None:
    buffers = Buffers()
    held = [buffers.take(SIZE) for _ in range(20)]
    assert sum(len(each) for each in buffers.kept) <= MOST_KEPT_BYTES
    held.clear()
    large = buffers.take(MOST_KEPT_BYTES // 2)
    assert any(each is large for each in buffers.kept), "free ones of another size make room"
    assert sum(len(each) for each in buffers.kept) <= MOST_KEPT_BYTES


def test_small_ones_are_left_to_the_allocator() -> None:
    buffers = Buffers()
    assert len(buffers.take(1000)) == 1000
    assert not buffers.kept
