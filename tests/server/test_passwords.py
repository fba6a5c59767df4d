"""Passwords that users show themselves: looked at slowly once, and at once after that."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from oncelog.log.work_steps import at_once
from oncelog.security.documents import Kind
from oncelog.server import passwords as passwords_module
from oncelog.server.aside import YIELDING, Aside
from oncelog.server.passwords import Passwords
from oncelog.server.users import adding, new_credentials, removing
from tests.server.admin_support import CLOCK, Admin


class Looked:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._passwords = Passwords(admin.broker.users, cast(Aside, self))
        self.slowly = 0

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        self.slowly += 1
        return work(*arguments)

    def change(self, change: Any) -> None:
        at_once(self._admin.topics.changing_document(Kind.USERS, change, CLOCK.now()))

    def give(self, name: str, password: str) -> None:
        self.change(adding(name, new_credentials(password, iterations=4096)))

    def look(self, name: str, password: str) -> tuple[bool, int]:
        """Whether it is right, and how often somebody looked slowly for it."""
        before = self.slowly
        is_right, _ = asyncio.run(self._passwords.look(name, password))
        return is_right, self.slowly - before


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    found = Looked(Admin(tmp_path))
    found.give("ann", "right")
    return found


def test_what_was_right_once_is_not_looked_at_slowly_again(looked: Looked) -> None:
    assert [looked.look("ann", "right") for _ in range(3)] == [(True, 1), (True, 0), (True, 0)]


def test_what_is_wrong_is_looked_at_each_time_and_so_is_who_is_nobody(looked: Looked) -> None:
    looked.look("ann", "right")
    for name, password in (("ann", "wrong"), ("nobody", "right"), ("", "right")):
        assert [looked.look(name, password) for _ in range(2)] == [(False, 1)] * 2
    assert looked.look("ann", "right") == (True, 0)


def test_another_password_makes_the_old_one_wrong_at_once(looked: Looked) -> None:
    looked.look("ann", "right")
    looked.give("ann", "newer")
    assert looked.look("ann", "right") == (False, 1)
    assert [looked.look("ann", "newer") for _ in range(2)] == [(True, 1), (True, 0)]
    looked.change(removing("ann"))
    assert looked.look("ann", "newer") == (False, 1)
    looked.give("ann", "newer")  # with another salt
    assert looked.look("ann", "newer") == (True, 1)


def test_only_so_many_are_remembered(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords_module, "MOST_USERS", 2)
    for name in ("bob", "cat"):
        looked.give(name, "right")
    for name in ("ann", "bob", "ann", "cat"):
        looked.look(name, "right")
    assert looked.look("ann", "right") == (True, 0)
    assert looked.look("bob", "right") == (True, 1)


async def test_who_looks_at_passwords_lets_all_others_go_first() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    mine = priority()
    # Elsewhere threads have no priority of their own.
    for is_yielding, nice in ((True, YIELDING if sys.platform == "linux" else mine), (False, mine)):
        aside = Aside("test", is_yielding=is_yielding)
        try:
            assert await aside.run(priority) == nice
        finally:
            aside.close()
    assert priority() == mine


def test_a_server_that_was_started_nicer_than_that_lets_people_in() -> None:
    """It may not become less nice again, and a thread that cannot begin would end all proofs."""
    work = "import asyncio, os; from oncelog.server.aside import Aside; os.nice(19)\n"
    work += "os.getuid() or os.setuid(65534)\n"
    work += "print(asyncio.run(Aside('test', is_yielding=True).run(str, 'done')))"
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n", done.stderr
