"""A member's way from the places that it has to those that it is to have: the table of KIP-848.

    | the member is | and | then |
    |---|---|---|
    | STABLE | in the epoch of the target | nothing |
    | UNREVOKED | still has what it must give up, or does not say | also what it reads no more; its time runs |
    | any other | has places that are not in the target | UNREVOKED in its old epoch, with the places in common |
    | any other | misses places that others have | UNRELEASED in the target's epoch, with those that are free |
    | any other | | STABLE in the target's epoch, with all of it |

A place is another member's until that one has said that it gave it up, or is out of the group. So no two have it.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from oncelog.server.groups.consumer.values import Current, Epochs, MemberState, Place, Places


def reconciled(
    current: Current,
    target_epoch: int,
    target: Places,
    owned: Places | None,
    is_taken: Callable[[Place], bool],
    is_read: Callable[[Place], bool],
    *,
    is_narrower: bool = False,
) -> Current:
    """`is_taken` says whether another member has the place, `is_read` whether the member is subscribed to its topic,
    `is_narrower` whether a target of the member's own epoch may lack what it has: its subscription changed, and the new
    target is not there yet."""
    is_there = current.state is MemberState.STABLE and current.epoch == target_epoch
    if is_there and (not is_narrower or current.assigned.keys() <= target):
        return current
    if current.state is MemberState.UNREVOKED and _has_any(owned, current.revoking):
        return _without(current, [place for place in current.assigned if not is_read(place)])
    kept = {place: epoch for place, epoch in current.assigned.items() if place in target}
    revoking = {place: epoch for place, epoch in current.assigned.items() if place not in target}
    if revoking and _has_any(owned, revoking):
        return Current(
            epoch=current.epoch,
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED,
            assigned=kept,
            revoking=revoking,
        )
    missing = [place for place in target if place not in kept]
    free = [place for place in missing if not is_taken(place)]
    return Current(
        epoch=target_epoch,
        previous_epoch=current.epoch,
        state=MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED,
        assigned=kept | dict.fromkeys(free, target_epoch),
        revoking={},
    )


def _without(current: Current, places: Collection[Place]) -> Current:
    """The member's places without these, which it must give up, too."""
    if not places:
        return current
    more = {place: current.assigned[place] for place in places}
    kept = {place: epoch for place, epoch in current.assigned.items() if place not in more}
    return replace(current, previous_epoch=current.epoch, assigned=kept, revoking={**current.revoking, **more})


def _has_any(owned: Places | None, places: Epochs) -> bool:
    """Whether the member has any of these. One that does not say what it has may have them all."""
    return owned is None or any(place in places for place in owned)
