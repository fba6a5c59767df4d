"""Options of a sink that cannot be meant, and what a lane has of properties unless the user says otherwise. Pure."""

from typing import Final

from oncelog.client.door import ALIASES
from oncelog.spark.option import BadOption
from oncelog.spark.options import SinkOptions
from oncelog.spark.register_names import unfit_name
from oncelog.spark.sink.lane import TOPIC_PREFIX

# Kafka's own time limit, which outlives a broker that restarts, and its bound of memory.
_DEFAULTS: Final = {"message.timeout.ms": "120000", "queue.buffering.max.kbytes": "32768"}
TRANSACTION_TIMEOUT_MS: Final = 300_000  # Java's minute is short for a batch; brokers allow fifteen
_ONCE: Final = {"enable.idempotence": ("true", "1"), "request.required.acks": ("all", "-1")}


def check_options(options: SinkOptions) -> None:
    lane_properties(options)
    for option, name in (("sink.name", options.sink_name), ("job.id", options.job_id)):
        if name is not None:
            check_name(option, name)


def check_name(option: str, name: str) -> None:
    unfit = unfit_name(name, TOPIC_PREFIX)
    if unfit is not None:
        raise BadOption(f"Option '{option}': {name!r} cannot be the name of a sink: {unfit}")


def lane_properties(options: SinkOptions) -> dict[str, str]:
    """The properties of a lane's producer; refuses what would not be exactly once."""
    given = {ALIASES.get(name, name): value for name, value in options.client.items()}
    for name, allowed in _ONCE.items():
        value = given.get(name)
        if value is not None and value.strip().lower() not in allowed:
            raise BadOption(f"'kafka.{name}' = {value}: this sink writes every row once, and needs {allowed[0]}")
    return _DEFAULTS | given


def transaction_timeout_ms(options: SinkOptions) -> int:
    """The time after which brokers abort what was not committed."""
    written = options.client.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
    return int(written)
