"""Committed offsets as a register: copies race, die and lose answers, and each commit builds upon the one before."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from oncelog.client.errors import KafkaException
from oncelog.client.net import retry
from oncelog.client.register.offsets import OffsetsKeeper
from oncelog.client.saving.ownership import Ownership
from oncelog.slots.register import Outcome
from tests.client.register.group_world import World

SEEDS = 80
COPIES = 6

Method = Callable[..., Awaitable[Any]]
at_once = patch.object(retry, "Patience", lambda patience=retry.Patience: patience(pause_s=0))


async def test_every_commit_builds_upon_the_one_before() -> None:
    with at_once:
        for seed in range(SEEDS):
            await World(seed).run(COPIES)


def _looks_before_it_joins() -> AbstractContextManager[Any]:
    joins, looks = OffsetsKeeper.join, OffsetsKeeper.held

    async def join(self: OffsetsKeeper) -> None:
        pass

    async def held(self: OffsetsKeeper) -> Any:
        found = await looks(self)
        await joins(self)
        return found

    return patch.multiple(OffsetsKeeper, join=join, held=held)


def _a_refused_look_says_nothing_is_there(looks: Method = OffsetsKeeper.held) -> AbstractContextManager[Any]:
    async def held(self: OffsetsKeeper) -> Any:
        try:
            return await looks(self)
        except KafkaException:
            return []

    return patch.object(OffsetsKeeper, "held", held)


def _a_commit_that_was_refused_counts(commits: Method = OffsetsKeeper.commit) -> AbstractContextManager[Any]:
    async def commit(self: OffsetsKeeper, entries: Any) -> None:
        try:
            await commits(self, entries)
        except KafkaException:
            pass

    return patch.object(OffsetsKeeper, "commit", commit)


MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a member that failed stays one": lambda: patch.object(OffsetsKeeper, "forget", lambda self: None),
    "it looks before it joins": _looks_before_it_joins,
    "a look that was refused shows nothing": _a_refused_look_says_nothing_is_there,
    "a commit that was refused counts": _a_commit_that_was_refused_counts,
    "who joined may commit whatever is held": lambda: patch.object(Ownership, "came_of", lambda *_: Outcome.OPEN),
    "errors of a group are passed over": lambda: patch(
        "oncelog.client.register.offsets.raise_unless_ok", lambda code: None
    ),
    "only the longest session is asked for": lambda: patch("oncelog.client.register.offsets.SESSIONS_MS", (1_800_000,)),
    "who is no member is refused for good": lambda: patch("oncelog.client.register.offsets.NOT_A_MEMBER", frozenset()),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_the_model_catches_it_when(name: str) -> None:
    with at_once, MUTANTS[name](), pytest.raises((AssertionError, KafkaException)):
        for seed in range(SEEDS):
            await World(seed).run(COPIES)
