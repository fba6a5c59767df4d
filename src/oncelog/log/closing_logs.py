"""Closing many logs: several at a time wait for the disk, or a stop would take as long as all flushes one by one."""

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from oncelog.log.errors import LogStorageError
from oncelog.log.flush import FlushPlan
from oncelog.log.partition import PartitionLog

logger = logging.getLogger(__name__)

THREADS = 32
AT_ONCE = 64  # whose producers are held in memory, encoded


def close_all(logs: Iterable[PartitionLog]) -> None:
    """Close them on the appending thread, when nothing else flushes. What fails is left to the recovery of the next
    start."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="closing") as threads:
        left = iter(logs)
        while some := list(islice(left, AT_ONCE)):
            plans = [(log, plan) for log in some if (plan := _plan(log)) is not None]
            for (log, _), error in zip(plans, threads.map(_carry_out, [plan for _, plan in plans]), strict=True):
                if error is not None:
                    logger.warning("%s is not closed cleanly: %s", log.folder, error)
            for log in some:
                log.abandon()


def _plan(log: PartitionLog) -> FlushPlan | None:
    if log.closed or log.offline is not None or not log.is_behind:
        return None
    try:
        return log.begin_flush()
    except (OSError, LogStorageError) as error:
        logger.warning("%s is not closed cleanly: %s", log.folder, error)
        return None


def _carry_out(plan: FlushPlan) -> OSError | None:
    try:
        plan.sync()
        plan.write_snapshot()
    except OSError as error:
        return error
    return None
