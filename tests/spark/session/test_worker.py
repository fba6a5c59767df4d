"""What PySpark's daemon does after each task of a worker. Freezing is for good, so each test has its own process."""

import subprocess
import sys

WORKER = """
import gc
import oncelog.spark.idle_workers as idle

def task(import_what):
    __import__(import_what)
    return 0

daemon_calls = idle.KeepingImports(task)
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", WORKER + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_a_task_has_imported_is_not_looked_at_for_garbage_again() -> None:
    run("""
before = len(gc.get_objects())
assert gc.get_freeze_count() == 0
daemon_calls("oncelog.client")
assert gc.get_freeze_count() > before
assert len(gc.get_objects()) < before / 10
""")


def test_what_a_task_leaves_behind_is_found_where_nothing_was_imported() -> None:
    run("""
import weakref

class Left:
    pass

daemon_calls("oncelog.client")
frozen = gc.get_freeze_count()
left = Left()
left.itself = left
gone = weakref.ref(left)
del left
daemon_calls("oncelog.client")
assert gc.get_freeze_count() <= frozen
gc.collect()
assert gone() is None
""")


def test_a_task_that_fails_leaves_its_imports_frozen_too() -> None:
    run("""
def broken(what):
    __import__(what)
    raise ValueError("no")

try:
    idle.KeepingImports(broken)("oncelog.client")
except ValueError:
    pass
assert gc.get_freeze_count() > 1000
""")
