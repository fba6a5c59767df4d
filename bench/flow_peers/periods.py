"""How far apart the timers of `regroup_timed` are, for the program and for its audit."""

PERIOD_MS = 300_000
