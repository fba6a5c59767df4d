"""The owner of a partition in a folder that several workers share: one at a time, since there is one copy of it.

The same `Leadership` as among brokers, with two of its fields read in another way:

    replicas   the worker that is to have it; none where the topic is being deleted
    in sync    the worker that has it open or may open it at any time; none where nobody has
    leader     the same one, once it serves; its epoch is the log's own

A worker takes what is to be its own and is free, and lets go of the rest. Their parent says who is to have what, and it
alone frees what a worker had that has ended: it has reaped that process, so nobody appends there any more.
"""

from collections.abc import Collection, Sequence

from oncelog.replication.leadership import NOBODY, Leadership


def shared_out(topic: str, index: int, workers: Sequence[int], working: Collection[int]) -> int:
    """The worker that is to have it: the same one as long as that works; NOBODY where none does."""
    at = sum(topic.encode()) + index
    if workers[at % len(workers)] in working:
        return workers[at % len(workers)]
    left = [worker for worker in workers if worker in working]
    return left[at % len(left)] if left else NOBODY


def beginning(target: int) -> Leadership:
    return Leadership(() if target == NOBODY else (target,))


# Of a worker


def is_to_have(state: Leadership, me: int) -> bool:
    return state.replicas == (me,)


def may_open(state: Leadership, me: int) -> bool:
    return state.replicas == state.in_sync == (me,)


def serves(state: Leadership, me: int, epoch: int) -> bool:
    return may_open(state, me) and (state.leader, state.epoch) == (me, epoch)


def changed_by_worker(state: Leadership, me: int, epoch: int | None) -> Leadership | None:
    """`epoch`: of the log, where it has that open. None: there is nothing for it to say."""
    if is_to_have(state, me) and not state.in_sync:
        return state._replace(in_sync=(me,), leader=NOBODY, version=state.version + 1)
    if epoch is None:
        is_let_go = state.in_sync == (me,) and not is_to_have(state, me)
        return _freed(state) if is_let_go else None
    if may_open(state, me) and not serves(state, me, epoch):
        return state._replace(leader=me, epoch=epoch, version=state.version + 1)
    return None


# Of their parent


def changed_by_parent(state: Leadership, target: int, ended: Collection[int]) -> Leadership | None:
    """`ended` are the workers whose processes are gone."""
    changed = state
    if not set(state.in_sync).isdisjoint(ended):
        changed = _freed(changed)
    if state.replicas and target != NOBODY and state.replicas != (target,):
        changed = changed._replace(replicas=(target,))
    return None if changed == state else changed._replace(version=state.version + 1)


def _freed(state: Leadership) -> Leadership:
    return state._replace(in_sync=(), leader=NOBODY, version=state.version + 1)


# Of a topic


def deleted(states: Sequence[Leadership]) -> tuple[Leadership, ...]:
    """Nobody is to have them any more."""
    return tuple(state._replace(replicas=(), version=state.version + 1) for state in states)


def is_deleted(states: Sequence[Leadership]) -> bool:
    return not any(state.replicas for state in states)


def is_free(states: Sequence[Leadership]) -> bool:
    """Whether nobody has any of them open."""
    return not any(state.in_sync for state in states)
