"""Runs flows: the cells of `flow/` against brokers, in this process. `Flow.run` and `Flow.start` lead here."""

from oncelog.runner.run import start

__all__ = ["start"]
