"""The order of an experiment to one of its processes: by a variable of its environment. A command line is seen by
everybody on the machine, and an order may hold a password."""

import json
import os
from collections.abc import Mapping
from typing import Any, Final

VARIABLE: Final = "CHAOS_ORDER"  # what begins with ONCELOG_ is a setting of the server


def telling(order: Mapping[str, Any]) -> dict[str, str]:
    """Variables for the process."""
    return {VARIABLE: json.dumps(order)}


def told() -> dict[str, Any]:
    """In the process; what it starts itself does not inherit it."""
    found: dict[str, Any] = json.loads(os.environ.pop(VARIABLE))
    return found
