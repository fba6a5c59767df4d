"""The work of Spark's Python workers between tasks, made cheap.

After every task PySpark's daemon has Python look for garbage among all objects. What we import is some 100,000 objects
that never become garbage: looking at them took 60 ms and more, half of the processor time of a small micro-batch, and
the next task waited for it. Frozen objects are not looked at.
"""

import gc
import sys

_modules_seen = 0


def keep_imports() -> None:
    """Keep at the end of a task what has been imported by now. Once for each import, not for each task, so that garbage
    which a task leaves behind is still found."""
    global _modules_seen
    if len(sys.modules) != _modules_seen:
        _modules_seen = len(sys.modules)
        gc.freeze()
