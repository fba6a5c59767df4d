"""The contestants of `bench.flows`, each a program: `PROGRAM PIPELINE`, with the variables that `setting.py` names.

Topics exist. Keys and counts are text (`p0000017`, `42`); the first eight bytes of a value are its user. A program runs
until it is ended, and keeps state, where it has any beside the log, in FLOW_STATE.

    count    each record writes how often its key has come so far
    regroup  each record goes to FLOW_BETWEEN under its user, and there the same is counted and written
"""
