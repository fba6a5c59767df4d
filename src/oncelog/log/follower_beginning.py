"""A follower that has nothing of what its leader still has: it begins anew at its leader's first offset, with the
producers as they were there. Producers that wrote nothing since would be unknown otherwise."""

from oncelog.clock import Now
from oncelog.log import snapshots
from oncelog.log.beginning_swap import swap_beginning
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.errors import LogStorageError
from oncelog.log.parts import Parts
from oncelog.log.snapshots import RecoveryPoint, Snapshot
from oncelog.producers import CorruptSnapshot


def encoded(log: Parts, now: Now) -> bytes:
    """The beginning of a follower, from its leader. Where the leader does not know the producers any more, it says
    so."""
    offset = log.segments.first_offset
    stored = snapshots.read_snapshot(log.disk, log.folder, offset)
    producers = log.producers.another().encode(now, blind=offset > 0) if stored is None else stored.producers
    epochs = log.epochs.copy()
    epochs.cut_end(offset)
    return snapshots.encode(Snapshot(RecoveryPoint(offset, offset, 0, 0, -1), epochs, producers, offset, offset))


def begin_anew(log: Parts, beginning: bytes, now: Now) -> None:
    """The log begins anew with what `encoded` told; empty: with nothing at all."""
    if not beginning:
        nothing = log.producers.another().encode(now)
        beginning = snapshots.encode(Snapshot(RecoveryPoint(0, 0, 0, 0, -1), LeaderEpochs(), nothing, 0))
    snapshot = snapshots.decode(beginning)
    if snapshot is None:
        raise LogStorageError("the beginning that its leader sent is no snapshot of this version")
    try:
        log.producers.another().decode(snapshot.producers, now)
    except CorruptSnapshot as error:
        raise LogStorageError(str(error)) from error
    offset = snapshot.point.offset
    log.extent.begin_cut()
    log.checkpointer.wait(log.folder)
    log.flusher.wait_for_note()
    log.flusher.forget_notes(offset)
    with log.noting_start:
        swap_beginning(log.disk, log.folder, offset, beginning)
        log.noted_start = offset
    log.segments.begin_at(offset)
    log.extent.begin_at(offset, log.segments.active)
    log.epochs.replace(snapshot.epochs)
    log.aborted.clear()
    log.flusher.begins_at(offset)
    log.producers.decode(snapshot.producers, now)
    log.stored_producers.end_moved()
