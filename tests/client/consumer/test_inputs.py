"""An input hands out what is there in one piece, however small the batches are, and passes nothing over."""

import os
from operator import attrgetter
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog import machine_code
from oncelog.client.consumer import inputs
from oncelog.client.consumer.decoding import FEW_RECORDS
from oncelog.client.consumer.inputs import Input, UntilLoaded
from oncelog.client.fetching.events import Chunk
from oncelog.client.in_background import InBackground
from oncelog.records.build import build_batch
from oncelog.records.column_types import BytesColumn


class Fetched:
    """In the place of Inputs: what is given back, and what is asked for again."""

    time_header = b"oncelog.time"
    check_crcs = True

    def __init__(self) -> None:
        self.again_at: list[int] = []

        self.waits = False

    def awaits_loops(self, chunk: Chunk) -> bool:
        return self.waits

    def taken(self, chunk: Chunk) -> None:
        pass

    def again(self, chunk: Chunk, offset: int) -> None:
        self.again_at.append(offset)


def chunk_of(*offsets: int, is_damaged_at: int | None = None) -> Chunk:
    """A batch of its own for each."""
    batches = b""
    for offset in offsets:
        batch = build_batch([(b"k%d" % offset, b"v", (), 1_000 + offset)], base_offset=offset)
        if offset == is_damaged_at:
            batch[-1] ^= 1
        batches += batch
    cursor: Any = SimpleNamespace(partition=("t", 0))
    return Chunk(cursor, 0, offsets[0], -1, offsets[-1] + 1, len(offsets), batches, [])


COLUMNS = tuple(attrgetter(name) for name in ("offsets", "keys", "values", "times"))


def input_of(how: Any, *chunks: Chunk, as_columns: bool = False) -> Input:
    found = Input(how, ("t", 0), 0, None, lambda: None, lambda error: None, False, False, as_columns)
    found.chunks.extend(chunks)
    return found


def test_small_batches_come_in_one_piece_up_to_as_many_as_are_asked_for() -> None:
    reading = input_of(Fetched(), chunk_of(0, 1, 2), chunk_of(3, 4))
    first, second = reading.take(4), reading.take(4)
    assert first is not None and second is not None and reading.take(4) is None
    assert (list(first.offsets), first.next_offset) == ([0, 1, 2, 3], 4)
    assert (list(first.keys), list(first.times)) == ([b"k0", b"k1", b"k2", b"k3"], [1000, 1001, 1002, 1003])
    assert (list(second.offsets), second.next_offset) == ([4], 5)


def test_what_is_skipped_is_given_back_and_never_handed_out() -> None:
    how = Fetched()
    reading = input_of(how, chunk_of(0, 1), chunk_of(2, 3), chunk_of(4, 5))
    reading.skip_to(3)
    assert len(reading.chunks) == 2
    piece = reading.take(10)
    assert piece is not None and list(piece.offsets) == [3, 4, 5]
    reading.skip_to(2)
    assert reading.position == 6


def test_what_lies_before_damage_comes_first_and_the_damaged_batch_is_asked_for_again() -> None:
    how = Fetched()
    reading = input_of(how, chunk_of(0, 1), chunk_of(2, 3, is_damaged_at=3), chunk_of(4, 5))
    reading.end_offset = 6
    piece = reading.take(10)
    assert piece is not None and list(piece.offsets) == [0, 1, 2]
    assert how.again_at == [3] and reading.position == 3
    assert reading.take(10) is None and not reading.is_at_end


def test_the_first_records_do_not_wait_for_the_compiled_loops_which_are_loaded_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loading: Any = SimpleNamespace(found=None, asked=0)
    loading.fetch = lambda: setattr(loading, "asked", loading.asked + 1)
    monkeypatch.setattr(inputs, "DECODING_LOOPS", loading)
    how: Any = Fetched()
    many = range(FEW_RECORDS + 1)
    reading = input_of(how, chunk_of(*many))
    first = reading.take(FEW_RECORDS)
    assert first is not None and list(first.offsets) == list(many)[:FEW_RECORDS] and loading.asked == 0
    assert reading.take(10) is not None and reading.take(10) is None and loading.asked == 1
    loading.found = "there"
    monkeypatch.setattr(inputs, "records_from", None)  # nothing is read without them any more
    again = input_of(how, chunk_of(*many)).take(FEW_RECORDS)
    assert again is not None and ([*again.keys], [*again.values]) == ([*first.keys], [*first.values])


def test_who_asks_for_columns_gets_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    many = range(FEW_RECORDS + 1)
    lists = input_of(Fetched(), chunk_of(*many)).take(len(many))
    monkeypatch.setattr(inputs, "DECODING_LOOPS", SimpleNamespace(found="there"))
    reading = input_of(Fetched(), chunk_of(*many), as_columns=True)
    pieces = [piece for piece in (reading.take(200), reading.take(200)) if piece is not None]
    assert lists is not None and [len(piece.keys) for piece in pieces] == [200, len(many) - 200]
    assert all(isinstance(cells, BytesColumn) for piece in pieces for cells in (piece.keys, piece.values))
    joined = [[cell for piece in pieces for cell in column(piece)] for column in COLUMNS]
    assert joined == [list(column(lists)) for column in COLUMNS]
    assert pieces[-1].next_offset == lists.next_offset
    assert all(isinstance(piece.offsets[-1], int) for piece in pieces)


def test_large_chunks_wait_while_the_loops_are_loaded_and_small_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    may_load = Event()
    loading = InBackground(lambda: may_load.wait(60))
    monkeypatch.setattr(inputs, "DECODING_LOOPS", loading)
    monkeypatch.setattr(machine_code, "is_near", lambda: False)
    loaded = Event()
    waits = UntilLoaded(loaded.set)
    small, large = chunk_of(1), chunk_of(*range(FEW_RECORDS + 1))
    assert not waits(large)  # nobody has asked for them yet
    loading.fetch()
    assert waits(large) and waits(large) and not waits(small)
    may_load.set()
    assert loaded.wait(60)
    assert not waits(large)


def test_where_machine_code_is_kept_the_first_large_chunk_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    may_load = Event()
    loading = InBackground(lambda: may_load.wait(60))
    monkeypatch.setattr(inputs, "DECODING_LOOPS", loading)
    monkeypatch.setattr(inputs, "HAS_COLUMNS", True)
    monkeypatch.setattr(machine_code, "is_near", lambda: True)
    loaded = Event()
    waits = UntilLoaded(loaded.set)
    assert not waits(chunk_of(1)) and not loading.is_loading, "a reader of few records loads nothing"
    assert waits(chunk_of(*range(FEW_RECORDS + 1)))
    may_load.set()
    assert loaded.wait(60)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_cannot_be_loaded_keeps_nobody_waiting() -> None:
    def fail() -> None:
        raise ImportError("no numba")

    loading: InBackground[object] = InBackground(fail)
    told = Event()
    loading.when_loaded(told.set)  # nothing is being loaded
    assert told.is_set()
    loading.fetch(wait=True)
    assert loading.found is None and not loading.is_loading


def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    may_load = Event()
    loading = InBackground(lambda: may_load.wait(60))
    loading.fetch()
    child = os.fork()
    if child == 0:
        os._exit(1 if loading.is_loading else 0)
    assert loading.is_loading
    may_load.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_input_whose_next_chunk_waits_has_nothing_now_and_is_not_at_its_end() -> None:
    how = Fetched()
    reading = input_of(how, chunk_of(0, 1))
    how.waits = True
    assert reading.take(10) is None and not reading.is_at_end
    how.waits = False
    piece = reading.take(10)
    assert piece is not None and list(piece.offsets) == [0, 1]
