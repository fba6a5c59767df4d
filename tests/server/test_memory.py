"""Buffers for large frames: those that a frame has grown into are used again, and few are kept."""

from oncelog.server.memory import LargeBuffers

SIZE_BYTES = 900_000


def test_the_largest_buffer_is_used_again_so_that_the_next_frame_need_not_grow() -> None:
    buffers = LargeBuffers()
    grown, small = bytearray(SIZE_BYTES), bytearray(100_000)
    buffers.give_back(grown)
    buffers.give_back(small)
    assert buffers.take(100_000) is grown
    assert buffers.take(100_000) is small


def test_small_buffers_give_way_to_large_ones_when_enough_are_kept() -> None:
    buffers = LargeBuffers()
    grown = bytearray(SIZE_BYTES)
    for _ in range(LargeBuffers.KEPT):
        buffers.give_back(bytearray(100_000))
    buffers.give_back(grown)
    assert buffers.kept(SIZE_BYTES) is grown
    assert buffers.kept(SIZE_BYTES) is None


def test_no_more_than_some_are_kept_and_none_that_is_very_large() -> None:
    buffers = LargeBuffers()
    for _ in range(2 * LargeBuffers.KEPT):
        buffers.give_back(bytearray(LargeBuffers.KEPT_BYTES + 1))
        buffers.give_back(bytearray(100_000))
    kept = [buffers.kept(1) for _ in range(2 * LargeBuffers.KEPT)]
    assert sum(1 for each in kept if each is not None) == LargeBuffers.KEPT
    assert max(len(each) for each in kept if each is not None) == 100_000
