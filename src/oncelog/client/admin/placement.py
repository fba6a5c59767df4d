"""The brokers that are to have each partition. Pure: today's replicas go in, the partitions that move come out."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from oncelog.slots import Place

Placed = Mapping[Place, Sequence[int]]  # the preferred leader first


def without(placed: Placed, leaving: int, brokers: Collection[int]) -> dict[Place, list[int]]:
    """Move what that broker has to others of these: to the one that has least of them, in its place in the order.
    ValueError where there are not enough."""
    loads = _loads(placed, brokers)
    moved: dict[Place, list[int]] = {}
    for place, replicas in sorted(placed.items()):
        if leaving not in replicas:
            continue
        others = [broker for broker in sorted(brokers) if broker != leaving and broker not in replicas]
        if not others:
            raise ValueError(
                f"{place[0]}-{place[1]} has {len(replicas)} replicas, and there is no other broker for the one at "
                f"{leaving}: add a broker, or give it fewer with `oncelog cluster reassign`"
            )
        at = replicas.index(leaving)
        chosen = min(others, key=lambda broker: _load(loads, broker, leads=at == 0))
        moved[place] = [chosen if broker == leaving else broker for broker in replicas]
        _count(loads, moved[place], 1)
        _count(loads, replicas, -1)
    return moved


def spread(placed: Placed, brokers: Collection[int]) -> dict[Place, list[int]]:
    """Replicas and preferred leaders evenly over these brokers, with as few moves as that takes."""
    now = {place: list(replicas) for place, replicas in sorted(placed.items())}
    loads = _loads(now, brokers)
    while (found := _replica_to_move(now, loads)) is not None:
        place, at, to = found
        _count(loads, now[place], -1)
        now[place][at] = to
        _count(loads, now[place], 1)
    for _ in range(len(now)):
        if not _lead_elsewhere(now, loads):
            break
    return {place: replicas for place, replicas in now.items() if replicas != list(placed[place])}


Loads = dict[int, Counter[str]]  # how many partitions a broker has, and how many it leads


def _loads(placed: Placed, brokers: Collection[int]) -> Loads:
    loads: Loads = {broker: Counter() for broker in sorted(brokers)}
    for replicas in placed.values():
        _count(loads, replicas, 1)
    return loads


def _count(loads: Loads, replicas: Sequence[int], by: int) -> None:
    for at, broker in enumerate(replicas):
        if broker in loads:
            loads[broker]["has"] += by
            loads[broker]["leads"] += by if at == 0 else 0


def _load(loads: Loads, broker: int, *, leads: bool) -> tuple[int, int, int]:
    load = loads[broker]
    return (load["leads"], load["has"], broker) if leads else (load["has"], load["leads"], broker)


def _replica_to_move(now: Mapping[Place, list[int]], loads: Loads) -> tuple[Place, int, int] | None:
    """A replica moves from the broker that has most to the one that has least, where these are two or more apart."""
    order = sorted(loads, key=lambda broker: _load(loads, broker, leads=False))
    for least in order:
        for most in reversed(order):
            if loads[most]["has"] - loads[least]["has"] < 2:
                break
            for place, replicas in now.items():
                if most in replicas and least not in replicas:
                    return place, replicas.index(most), least
    return None


def _lead_elsewhere(now: Mapping[Place, list[int]], loads: Loads) -> bool:
    """A broker that leads too many gives one up, by another order of the same replicas: of its partitions the one whose
    other replica leads least."""
    pairs = [
        (loads[replicas[at]]["leads"] - loads[replicas[0]]["leads"], place, at)
        for place, replicas in now.items()
        for at in range(1, len(replicas))
        if replicas[0] in loads and replicas[at] in loads
    ]
    if not pairs or min(pairs)[0] > -2:
        return False
    _, place, at = min(pairs)
    replicas = now[place]
    _count(loads, replicas, -1)
    replicas[0], replicas[at] = replicas[at], replicas[0]
    _count(loads, replicas, 1)
    return True
